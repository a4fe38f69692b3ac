"""Signatures of builds: `signature/build.sig` signs every file of the folder, by OpenSSF Model Signing.

A verification or an import adds results to a build later. So `signature/records` holds a copy of each file that they
change, and the signature covers the copies. A check can tell a changed result from a signed one. It refuses a changed
artifact, model, reference or program. Only `cache` and the signature itself are not covered. Artifacts contain nothing
of this, so a signed build has the bytes of an unsigned one.

The key is an ECDSA key. The library's own command checks the signature too.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.artifact.result import RESULT
from edgekit.artifact.run_record import CACHE
from edgekit.artifact.signed import SignatureInfo, artifact_digest, results_digest
from edgekit.artifact.store import MANIFEST, read_artifact, read_manifest
from edgekit.errors import ArtifactError, DependencyError, UsageError, install_command, reason
from edgekit.pipeline.outcome import Build
from edgekit.storage import verified_io
from edgekit.storage.files import aside, lock, staging

if TYPE_CHECKING:
    from model_signing.hashing import Config as Hashing
    from model_signing.signing import Config as Signer
    from model_signing.verifying import Config as Verifier

FOLDER, SIGNATURE, RECORDS = "signature", "build.sig", "records"
_NAME = r"[A-Za-z0-9_][\w.-]*"
# Files that `verify` and `import` write after signing, in a build and in the components of a composite one.
LATER = re.compile(
    rf"(?:{_NAME}/)?(?:run\.json|parts\.json|report\.(?:html|json|md|csv|junit\.xml)"
    rf"|{_NAME}/(?:manifest|result)\.json|{_NAME}/(?:errors|scores)-{_NAME}\.safetensors"
    rf"|imported/{_NAME}/{_NAME}\.(?:json|safetensors))"
)
# Bytes of a signature or a key; real ones are some KiB, and a signature has 100 bytes a file.
LARGEST = 16 << 20
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


def sign_with(key: Path) -> Callable[[Build], None]:
    """Return a function that signs a build; the key is checked now.

    Raises:
        UsageError: As for `signer_of`.
        DependencyError: As for `signer_of`.
    """
    return partial(sign, signer=signer_of(key))


def sign(build: Build, signer: Signer) -> None:
    """Sign every file of a build's folder.

    Args:
        build: The run's build.
        signer: The key (`signer_of`).

    Raises:
        ArtifactError: If another run changed the build meanwhile, or the folder holds a link or a special file.
    """
    root = build.path
    with lock(root, lambda: None):
        for outcome in build.outcomes:
            if outcome.manifest is None or not (outcome.path / MANIFEST).is_file():
                continue
            if read_artifact(outcome.path).sha256 != outcome.manifest.sha256:
                raise ArtifactError(f"another run replaced '{outcome.path}', so nothing was signed. Run again")
        files = [path for path in _files(root) if not path.startswith(f"{FOLDER}/")]
        with staging(root / FOLDER, _signature_files) as staged:
            for path in filter(LATER.fullmatch, files):
                copy = staged / RECORDS / path
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(root / path, copy)
        with aside(root / FOLDER / SIGNATURE) as temporary:
            signer.set_hashing_config(_hashing(files)).sign(root, temporary)


def require_signed(root: Path, key: Path, strict: bool = False) -> SignatureInfo:
    """Check that a key signed every file of a build, before anything in it is opened.

    Args:
        root: The build folder.
        key: Public ECDSA key (PEM).
        strict: True to refuse results that were added after signing too, as of a build from a store.

    Raises:
        UsageError: If the key is not a public ECDSA key.
        DependencyError: If the library is not installed.
        ArtifactError: If the signature is missing, damaged or by another key; if a file was changed, added or removed;
            or if the folder holds a link or a special file.
    """
    verifier = _verifier_of(key)
    files = set(_files(root))
    if f"{FOLDER}/{SIGNATURE}" not in files:
        raise ArtifactError(f"'{root}' is not signed. Its author must export it with --sign")
    if (root / FOLDER / SIGNATURE).stat().st_size > LARGEST:
        raise ArtifactError(f"the signature in '{root / FOLDER}' is larger than {LARGEST} bytes. Do not use the build")
    _verify(root, verifier.set_hashing_config(_hashing(files)), key)
    copies = {path.removeprefix(f"{FOLDER}/{RECORDS}/") for path in files if path.startswith(f"{FOLDER}/{RECORDS}/")}
    records: dict[str, str] = {}
    unsigned = []
    for path in sorted(copies | {path for path in files if LATER.fullmatch(path)}):
        copy, current = root / FOLDER / RECORDS / path, root / path
        folder, _, name = path.rpartition("/")
        if name == MANIFEST:
            if path not in copies or path not in files:
                word = "is not in the build's signature" if path not in copies else "was signed and is missing"
                raise ArtifactError(f"'{current}' {word}. Get the build from its author again")
            signed = read_manifest(copy.parent)
            records |= {path: artifact_digest(signed), f"{folder}/{RESULT}": results_digest(signed)}
        if path not in copies or path not in files or copy.read_bytes() != current.read_bytes():
            unsigned.append(path)
    if strict and unsigned:
        raise ArtifactError(
            f"'{root / unsigned[0]}' is not what was signed: it was written after signing, or lost. "
            "Get the build from its author again"
        )
    return SignatureInfo(root, records, tuple(unsigned))


def _signature_files(folder: Path) -> list[str]:
    """Return the files in a signature folder that signing wrote."""
    paths = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return [path for path in paths if path == SIGNATURE or path.startswith(f"{RECORDS}/")]


def _files(root: Path) -> Iterator[str]:
    """Yield the path of each file of a build but those of its cache.

    Raises:
        ArtifactError: If there is a link or a special file: its content may be another one at the next look.
    """
    for folder, folders, names in os.walk(root):
        if Path(folder) == root and CACHE in folders:
            folders.remove(CACHE)
        for name in (*folders, *names):
            path = Path(folder, name)
            mode = path.lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise ArtifactError(f"'{path}' is a link or a special file, which a signature cannot cover. Remove it")
            if name in names:
                yield path.relative_to(root).as_posix()


def _hashing(files: Iterable[str]) -> Hashing:
    """Return how the library hashes a build: all files, except those that are compared with their signed copies."""
    from model_signing.hashing import Config

    ignored = [CACHE, f"{FOLDER}/{SIGNATURE}", *filter(LATER.fullmatch, files)]
    # By default the library leaves out .git, whose config can run a program.
    return Config().set_ignored_paths(paths=ignored, ignore_git_paths=False)


def _verify(root: Path, verifier: Verifier, key: Path) -> None:
    try:
        # The library prints warnings.
        with contextlib.redirect_stdout(io.StringIO()):
            verifier.verify(root, root / FOLDER / SIGNATURE)
    # The parsers may raise anything.
    except Exception as error:
        if "Key mismatch" in str(error):
            why = f"is by another key than '{key}'"
        elif "Signature mismatch" in str(error):
            why = f"is of other files than those in the folder ({_difference(str(error))})"
        else:
            why = f"is damaged or not by the key '{key}'"
        raise ArtifactError(f"the signature of '{root}' {why}. Do not use the build") from error


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


def _difference(text: str) -> str:
    """Return the library's list of differences in words, without its digests."""
    # The printed form of a list escapes quotes.
    text = text.replace("\\'", "'")
    changed = re.findall(r"Hash mismatch for '([^']*)'", text)
    others = re.findall(r"(Extra|Missing) files (?:found )?in model '[^']*': ([^'\"\]]*)", text)
    words = [f"changed: {', '.join(changed)}"] if changed else []
    words += [f"{'not signed' if kind == 'Extra' else 'missing'}: {names}" for kind, names in others]
    return "; ".join(words)[:300] or "in their list"


def _key(path: Path) -> bytes:
    try:
        data = verified_io.read_named(path, LARGEST)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the key '{path}' ({reason(error)}). Name a file in PEM format") from error
    if b"-----BEGIN" not in data:
        raise UsageError(f"'{path}' does not hold a key in PEM format: {MAKE_ONE}")
    return data


def _no_key(path: Path, kind: str, hint: str) -> UsageError:
    return UsageError(f"'{path}' is not a {kind} ECDSA key of P-256, P-384 or P-521 in PEM format: {hint}")


def _lacking(error: ImportError) -> DependencyError:
    return DependencyError(f"signatures need model-signing ({error}). Run: {install_command('sign')}")
