"""Signatures of builds: `signature/statement.json` has the hashes of its records, `signature/statement.sig` signs it.

The records are the heads of the build's chains of hashes: each artifact's manifest, config.json, reference.json,
program.json, the seals of imported results, each target's outcome in run.json, and the bill of materials. An artifact's
results are signed separately from its manifest, since each judgement measures other times. Artifacts contain none of
this: a signed build has the bytes of an unsigned one.

The signature is one of OpenSSF Model Signing, by an ECDSA key; that library's own command can check it too.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.artifact.result import RESULT
from edgekit.artifact.run_record import MODEL, NOT_MADE, PROGRAM, REFERENCE, RUN, read_run
from edgekit.artifact.signed import SignatureInfo, artifact_digest, results_digest
from edgekit.artifact.store import MANIFEST, read_artifact
from edgekit.errors import ArtifactError, DependencyError, UsageError, install_command
from edgekit.model import records
from edgekit.pipeline.outcome import Build
from edgekit.reference import info
from edgekit.report import imports
from edgekit.storage import verified_io
from edgekit.storage.files import digest_file, digest_text, dump_json, load_json, lock, scratch, staging
from edgekit_provenance.bill import BILL

if TYPE_CHECKING:
    from model_signing.signing import Config as Signer
    from model_signing.verifying import Config as Verifier

FOLDER, STATEMENT, SIGNATURE = "signature", "statement.json", "statement.sig"
RECORDS = {MODEL: records.CONFIG, REFERENCE: info.INFO, PROGRAM: records.INFO}
# Bytes of a statement, a signature or a key; real ones are some KiB.
LARGEST = 1 << 20
MAKE_ONE = "make one with `openssl ecparam -name prime256v1 -genkey -noout -out key.pem`"


def signer_of(key: Path) -> Signer:
    """Return the signer of a private key.

    Raises:
        UsageError: If it is not a private ECDSA key without a passphrase.
        DependencyError: If the library is not installed.
    """
    data = _key(key)
    if b"PUBLIC KEY-----" in data:
        raise UsageError(f"'{key}' is a public key. Give --sign the private one")
    if b"ENCRYPTED" in data:
        raise UsageError(f"the key '{key}' has a passphrase, which edgekit does not support. Give one without")
    try:
        from model_signing.signing import Config
    except ImportError as error:
        raise _lacking(error) from error
    try:
        return Config().use_elliptic_key_signer(private_key=key)
    # The parsers may raise anything.
    except Exception as error:
        raise _no_key(key, "private", MAKE_ONE) from error


def sign_with(key: Path) -> Callable[[Build, bool], None]:
    """Return a function that signs a build, and optionally its bill of materials; the key is checked now.

    Raises:
        UsageError: As for `signer_of`.
        DependencyError: As for `signer_of`.
    """
    return partial(sign, signer=signer_of(key))


def sign(build: Build, bill: bool, signer: Signer) -> None:
    """Sign the artifacts of a build that the run made or kept, except rejected ones.

    Args:
        build: The run's build.
        bill: True to sign the bill of materials too.
        signer: The key (`signer_of`).

    Raises:
        ArtifactError: If another run changed the build meanwhile.
    """
    with lock(build.path, lambda: None):
        records = {**_records(build.path), **_imported_seals(build.path)}
        for outcome in build.outcomes:
            if outcome.bad or outcome.manifest is None:
                continue
            artifact = read_artifact(outcome.path)
            if artifact.sha256 != outcome.manifest.sha256:
                raise ArtifactError(f"another run replaced '{outcome.path}', so nothing was signed. Run again")
            records[f"{outcome.target}/{MANIFEST}"] = artifact_digest(artifact)
            records[f"{outcome.target}/{RESULT}"] = results_digest(artifact)
        if bill:
            records[BILL] = digest_file(build.path / BILL)
        with staging(build.path / FOLDER, lambda _: (STATEMENT, SIGNATURE)) as staged:
            (staged / STATEMENT).write_text(dump_json({"schema_version": 1, "records": records}))
            signer.sign(staged / STATEMENT, staged / SIGNATURE)


def require_signed(root: Path, key: Path) -> SignatureInfo:
    """Check that a key signed a build: its model, its reference and the other files next to its artifacts.

    Each artifact is checked when it is read (`Signed.require_artifact`).

    Raises:
        UsageError: If the key is not a public ECDSA key.
        DependencyError: If the library is not installed.
        ArtifactError: If the signature is missing, damaged or by another key, or anything differs from it.
    """
    signed = _read(root, key)
    records = _records(root)
    run = {RUN} if records.pop(RUN, "") != signed.records.get(RUN, "") else set()
    for path, digest in records.items():
        signed.require(path, digest)
    imported = _imported_seals(root)
    for path in imported.keys() & signed.records.keys():
        signed.require(path, imported[path])
    if os.path.lexists(root / BILL):
        signed.require(BILL, digest_file(root / BILL) if not (root / BILL).is_symlink() else "")
    for path in sorted(signed.records.keys() - {RUN}):
        folder, _, name = path.rpartition("/")
        # The manifest names an artifact's results.
        if not (root / folder / (MANIFEST if name == RESULT else name)).is_file():
            raise ArtifactError(f"'{root / path}' was signed and is missing. Get the build from its author again")
    return replace(signed, unsigned=tuple(sorted(run | (imported.keys() - signed.records.keys()))))


def _read(root: Path, key: Path) -> SignatureInfo:
    _verifier_of(key)
    try:
        statement, signature = (verified_io.read_bytes(root / FOLDER, name, LARGEST) for name in (STATEMENT, SIGNATURE))
    except verified_io.MissingError as error:
        raise ArtifactError(f"'{root}' is not signed. Its author must export it with --sign") from error
    except verified_io.RefusedError as error:
        raise ArtifactError(f"the signature in '{root / FOLDER}' {error}. Export with --sign again") from error
    return SignatureInfo(root, _verify(statement, signature, key, str(root)))


def _verify(statement: bytes, signature: bytes, key: Path, name: str) -> dict[str, str]:
    """Check a statement's signature by a key; return the statement's records, if it has any."""
    verifier = _verifier_of(key)
    with scratch() as place:
        (place / STATEMENT).write_bytes(statement)
        (place / SIGNATURE).write_bytes(signature)
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # the library prints warnings
                verifier.verify(place / STATEMENT, place / SIGNATURE)
            return {str(path): str(digest) for path, digest in load_json(statement).get("records", {}).items()}
        # The parsers may raise anything.
        except Exception as error:
            if "Key mismatch" in str(error):
                why = f"is by another key than '{key}'"
            elif "Signature mismatch" in str(error):
                why = "is of another statement: it has changed since it was signed"
            else:
                why = f"is damaged or not by the key '{key}'"
            raise ArtifactError(f"the signature of '{name}' {why}. Do not use the build") from error


def _verifier_of(key: Path) -> Verifier:
    if b"PRIVATE KEY-----" in _key(key):
        raise UsageError(f"'{key}' is a private key. Give --key the public one (`openssl pkey -in KEY -pubout`)")
    try:
        from model_signing.verifying import Config
    except ImportError as error:
        raise _lacking(error) from error
    try:
        return Config().use_elliptic_key_verifier(public_key=key)
    # The parsers may raise anything.
    except Exception as error:
        raise _no_key(key, "public", "`openssl pkey -in KEY -pubout` writes it") from error


def _records(root: Path) -> dict[str, str]:
    """Return the records' own hashes, for the records next to the artifacts, each checked."""
    digests = {}
    for folder, name in RECORDS.items():
        try:
            digests[f"{folder}/{name}"] = str(verified_io.read_record(root / folder, name)[verified_io.SEAL])
        except verified_io.MissingError:
            continue
        except verified_io.RefusedError as error:
            raise ArtifactError(f"'{root / folder / name}' {error}. Export again") from error
    statuses = {
        n: target for n, target in sorted(read_run(root).targets.items()) if target.status in NOT_MADE or target.over
    }
    # Otherwise the manifests contain everything.
    if statuses:
        digests[RUN] = digest_text(
            dump_json({n: (status.status, status.error, str(status.over)) for n, status in statuses.items()})
        )
    return digests


def _imported_seals(root: Path) -> dict[str, str]:
    """Return the hashes of imported results' seals, after checking the files that they name."""
    homes = (path.parent for path in sorted(root.glob(f"{imports.IMPORTED}/*/{imports.SEAL}")))
    return {
        f"{imports.IMPORTED}/{home.name}/{imports.SEAL}": imports.read_seal(home)[verified_io.SEAL] for home in homes
    }


def _key(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            data = stream.read(LARGEST)
    except OSError as error:
        raise UsageError(f"cannot read the key '{path}' ({error.strerror}). Name a file in PEM format") from error
    if b"-----BEGIN" not in data:
        raise UsageError(f"'{path}' does not hold a key in PEM format: {MAKE_ONE}")
    return data


def _no_key(path: Path, kind: str, hint: str) -> UsageError:
    return UsageError(f"'{path}' is not a {kind} ECDSA key of P-256, P-384 or P-521 in PEM format: {hint}")


def _lacking(error: ImportError) -> DependencyError:
    return DependencyError(f"signatures need model-signing ({error}). Run: {install_command('sign')}")
