"""Signed builds: a signature covers every file, and nothing that differs from it is opened."""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit import report
from edgekit.artifact.manifest import Manifest
from edgekit.artifact.result import RESULT, EvaluationResult, Evidence, Result, result_text
from edgekit.artifact.run_record import RUN, RunRecord, TargetStatus, write_run
from edgekit.artifact.store import amend, read_artifact
from edgekit.errors import ArtifactError, DependencyError, EdgekitError, UsageError, install_command
from edgekit.pipeline import run
from edgekit.pipeline.context import RunContext
from edgekit.pipeline.outcome import Build, TargetOutcome
from edgekit.report.imports import write_imported
from edgekit.storage.verified_io import seal_record
from edgekit.testing import QuietListener
from edgekit_apps import assets as apps
from edgekit_provenance import signature
from edgekit_provenance.bill import BILL
from tests.command import exit_code
from tests.keys import NO_LIBRARY, write_keys
from tests.manifests import resealed, result
from tests.plugins.apps import toy

pytestmark = NO_LIBRARY
SLOW = bool(os.environ.get("EDGEKIT_SLOW"))
SIGNED = ("onnx", "executorch", "torch-mobile")


def sign(root: Path, key: Path, targets: tuple[str, ...] = SIGNED) -> None:
    outcomes = [TargetOutcome(t, root / t, "verified", manifest=read_artifact(root / t)) for t in targets]
    outcomes.append(TargetOutcome("coreml", root / "coreml", "rejected", manifest=read_artifact(root / "coreml")))
    signature.sign(Build(tuple(outcomes), root, "a GPU"), signature.signer_of(key))


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_keys(tmp_path_factory.mktemp("keys"), "release")


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory, keys: tuple[Path, Path]) -> Path:
    root = toy.build(tmp_path_factory.mktemp("signed") / "toy")
    sign(root, keys[0])
    return root


@pytest.fixture
def own(signed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(signed, tmp_path / "build" / "toy"))


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The artifacts that `verify` would have run."""
    names: list[str] = []

    def evaluate(context: RunContext, name: str, made: Manifest) -> Result:
        names.append(name)
        return result(
            EvaluationResult(place="cpu", status="not verified here"), target=name, artifact_sha256=made.sha256
        )

    monkeypatch.setattr(run, "evaluate", evaluate)
    monkeypatch.setattr(report, "write_report", lambda root: None)
    return names


def verified(root: Path, key: Path) -> dict[str, str]:
    """What `verify` says of each artifact: its error, empty where it was run."""
    return {o.target: o.error for o in run.verify(root, QuietListener(), trust_build=True, key=key).outcomes}


def test_a_signed_build_is_run_rejected_artifacts_too(own: Path, keys: tuple[Path, Path], reached: list[str]) -> None:
    found = verified(own, keys[1])
    assert not any(found.values())
    assert set(reached) == set(found) > set(SIGNED)


def test_signing_changes_no_byte_of_the_build(signed: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    def bytes_of(root: Path) -> dict[str, str]:
        paths = (path for path in sorted(root.rglob("*")) if path.is_file())
        every = {path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
        return {path: digest for path, digest in every.items() if not path.startswith(f"{signature.FOLDER}/")}

    again = Path(shutil.copytree(signed, tmp_path / "toy"))
    sign(again, keys[0])
    assert bytes_of(again) == bytes_of(signed) == bytes_of(toy.build(tmp_path / "other" / "toy"))
    signature.require_signed(again, keys[1], strict=True)


def test_no_changed_byte_of_any_file_is_accepted(own: Path, keys: tuple[Path, Path], reached: list[str]) -> None:
    imported = result(EvaluationResult(place="nnapi", status="not verified here"), target="onnx")
    write_imported(own / "imported" / "phone", {RESULT: result_text(imported).encode()})
    (own / BILL).write_text("{}")
    every = tuple(folder.name for folder in own.iterdir() if (folder / "manifest.json").is_file())
    outcomes = [TargetOutcome(t, own / t, "verified", manifest=read_artifact(own / t)) for t in every]
    signature.sign(Build(tuple(outcomes), own, "a GPU"), signature.signer_of(keys[0]))
    assert not any(verified(own, keys[1]).values())
    files = [path for path in sorted(own.rglob("*")) if path.is_file() and path.stat().st_size]
    draw = random.Random(0)
    accepted = []
    for number in range(2000 if SLOW else 150):
        path = files[number % len(files)]
        data = path.read_bytes()
        place, bit = draw.randrange(len(data)), 1 << draw.randrange(8)
        path.write_bytes(data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :])
        try:
            signature.require_signed(own, keys[1], strict=True)
            accepted.append((path.relative_to(own).as_posix(), place, bit))
        except EdgekitError:
            pass
        try:  # what a later run may have written is said to be unsigned, and not believed
            unsigned = signature.require_signed(own, keys[1]).unsigned
            if path.relative_to(own).as_posix() not in unsigned:
                accepted.append((path.relative_to(own).as_posix(), place, bit))
        except EdgekitError:
            pass
        path.write_bytes(data)
    assert accepted == []
    assert not any(verified(own, keys[1]).values())


def extra_file(root: Path, path: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(b"[core]\n\tfsmonitor = touch /tmp/ran\n")


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".gitattributes",
        ".envrc",
        "conftest.py",
        "onnx/evil.so",
        "signature/evil.so",
        "model/.hidden",
        "evil/manifest.json",
        "imported/.git/config",
    ],
)
def test_a_file_that_nobody_signed_is_refused(
    own: Path, keys: tuple[Path, Path], reached: list[str], path: str
) -> None:
    extra_file(own, path)
    with pytest.raises(ArtifactError, match=r"signed|signature"):
        verified(own, keys[1])
    assert reached == []


@pytest.mark.parametrize("later", ["run.json", "imported/phone/result.json", "onnx/scores-gpu.safetensors"])
def test_what_a_later_run_writes_is_said_to_be_unsigned_and_no_store_may_bring_it(
    own: Path, keys: tuple[Path, Path], later: str
) -> None:
    extra_file(own, later)
    assert signature.require_signed(own, keys[1]).unsigned == (later,)
    with pytest.raises(ArtifactError, match=re.escape(f"{later}' is not what was signed")):
        signature.require_signed(own, keys[1], strict=True)


def test_links_and_special_files_are_refused(own: Path, keys: tuple[Path, Path]) -> None:
    for make in (lambda p: p.symlink_to("/etc/passwd"), lambda p: os.mkfifo(p)):
        make(own / "odd")
        with pytest.raises(ArtifactError, match="odd' is a link or a special file"):
            signature.require_signed(own, keys[1])
        with pytest.raises(ArtifactError, match="odd' is a link or a special file"):
            sign(own, keys[0])
        (own / "odd").unlink()


def test_the_librarys_own_command_checks_it(own: Path, keys: tuple[Path, Path]) -> None:
    folder = own / signature.FOLDER
    asked = [sys.executable, "-m", "model_signing", "verify", "key", str(own), "--no-ignore-git-paths"]
    asked += ["--signature", str(folder / signature.SIGNATURE), "--public_key", str(keys[1])]
    assert subprocess.run(asked, capture_output=True).returncode == 0


def theirs(root: Path, *folders: str) -> None:
    """Put folders of another build, which is signed by this key too, in the place of a build's own."""
    other = toy.build(root.parent / "other" / "toy", shift=1.0)
    sign(other, root.parents[1] / "release.pem")
    for name in folders:
        shutil.rmtree(root / name)
        shutil.copytree(other / name, root / name)


def edited(root: Path, file: str, change: Callable[[str], str]) -> None:
    path = root / signature.FOLDER / file
    path.write_text(change(path.read_text()))


def by_another_key(root: Path) -> None:
    sign(root, write_keys(root.parent, "other")[0])


def another_key_under_this_ones_name(root: Path) -> None:
    """The hint, which names the key, is not signed."""
    path = root / signature.FOLDER / signature.SIGNATURE
    hint = path.read_text().split('"hint":"')[1].split('"')[0]
    by_another_key(root)
    edited(root, signature.SIGNATURE, lambda text: text.replace(text.split('"hint":"')[1].split('"')[0], hint))


def a_program_that_nobody_signed(root: Path) -> None:
    (root / "program").mkdir()
    (root / "program" / "program.json").write_text(seal_record({"files": {}}))


WHOLE_BUILD: dict[str, tuple[Callable[[Path], object], str]] = {
    "no signature": (
        lambda root: shutil.rmtree(root / signature.FOLDER),
        "is not signed",
    ),
    "half a signature": (lambda root: (root / signature.FOLDER / signature.SIGNATURE).unlink(), "is not signed"),
    "a damaged signature": (
        lambda root: edited(root, signature.SIGNATURE, lambda _: "{}"),
        "is damaged or not by the key",
    ),
    "another key": (by_another_key, "is by another key than"),
    "another key under this one's name": (another_key_under_this_ones_name, "is damaged or not by the key"),
    "another build's": (lambda root: theirs(root, signature.FOLDER), "is of other files than those in the folder"),
    "another model": (lambda root: theirs(root, "model", "reference"), r"changed: model/"),
    "a program that nobody signed": (a_program_that_nobody_signed, r"not signed: program/program\.json"),
}


@pytest.mark.parametrize("name", WHOLE_BUILD)
def test_a_build_that_its_signature_does_not_vouch_for_is_refused(
    own: Path,
    keys: tuple[Path, Path],
    reached: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    change, sentence = WHOLE_BUILD[name]
    shutil.copy(keys[0], tmp_path)
    change(own)
    app = toy.android_app(tmp_path / "app")
    before = sorted(app.rglob("*"))
    with pytest.raises(ArtifactError, match=sentence) as told:
        verified(own, keys[1])
    assert "\n" not in str(told.value)
    assert reached == []
    assert exit_code("assets", "android", own, "--into", app, "--key", keys[1], "--trust-build") == 2
    assert exit_code("assets", "android", own, "--into", app, "--key", keys[1], "--check", "--trust-build") == 2
    assert capsys.readouterr().err.count("\n") == 2
    assert sorted(app.rglob("*")) == before


def entered(root: Path, **verdict: object) -> None:
    """Change the verdict that a manifest has."""
    made = read_artifact(root / "onnx")
    resealed(root / "onnx", verdicts=(made.verdicts[0].model_copy(update=verdict),))


def a_signed_artifact_in_anothers_place(root: Path) -> None:
    shutil.rmtree(root / "onnx")
    shutil.copytree(root / "executorch", root / "onnx")


@pytest.mark.parametrize(
    "change", [lambda root: entered(root, place="gpu"), lambda root: entered(root, evidence=Evidence(inputs={"x": 9}))]
)
def test_another_verdict_than_the_signed_one_is_refused(
    own: Path, keys: tuple[Path, Path], reached: list[str], change: Callable[[Path], None]
) -> None:
    change(own)
    found = verified(own, keys[1])
    assert "onnx/manifest.json' is not what was signed" in found["onnx"]
    assert "onnx" not in reached
    assert found["torch-mobile"] == ""


@pytest.mark.parametrize("change", [lambda root: theirs(root, "onnx"), a_signed_artifact_in_anothers_place])
def test_another_signed_artifact_in_its_place_is_refused(
    own: Path, keys: tuple[Path, Path], reached: list[str], tmp_path: Path, change: Callable[[Path], None]
) -> None:
    shutil.copy(keys[0], tmp_path)
    change(own)
    with pytest.raises(ArtifactError, match="is of other files than those in the folder"):
        verified(own, keys[1])
    assert reached == []


def test_a_build_that_lacks_what_was_signed_is_refused(own: Path, keys: tuple[Path, Path]) -> None:
    for target in SIGNED:
        (own / target).rename(own.parent / target)
        with pytest.raises(ArtifactError, match=r"missing: .*|was signed and is missing"):
            verified(own, keys[1])
        (own.parent / target).rename(own / target)


def test_an_imported_result_is_signed_or_said_not_to_be(
    own: Path, keys: tuple[Path, Path], reached: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = result_text(result(EvaluationResult(place="nnapi", status="verified"))).encode()
    write_imported(own / "imported" / "phone", {RESULT: found})
    sign(own, keys[0])
    write_imported(own / "imported" / "other", {RESULT: found})
    assert exit_code("verify", own, "--key", keys[1], "--trust-build", "-t", SIGNED[0]) == 0
    head = capsys.readouterr().out.splitlines()[0]
    assert "; not signed: imported/other/result.json, imported/other/seal.json" in head
    assert "phone" not in head


def test_what_a_run_recorded_is_signed_or_said_not_to_be(own: Path, keys: tuple[Path, Path]) -> None:
    write_run(own, RunRecord(), {"litert": TargetStatus(status="failed", error="so")})
    sign(own, keys[0])
    assert signature.require_signed(own, keys[1]).unsigned == ()
    write_run(own, RunRecord(), {"onnx": TargetStatus(status="failed")})
    assert signature.require_signed(own, keys[1]).unsigned == (RUN,)
    (own / RUN).unlink()
    assert signature.require_signed(own, keys[1]).unsigned == (RUN,)


def test_a_bill_that_nobody_signed_is_refused(own: Path, keys: tuple[Path, Path]) -> None:
    (own / BILL).write_text("{}")
    with pytest.raises(ArtifactError, match=r"not signed: bom\.cdx\.json"):
        verified(own, keys[1])


def test_assets_take_only_signed_builds(own: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    app = toy.android_app(tmp_path / "app")
    selected = ("executorch", "torch-mobile")
    assert apps.write_assets("android", own, app, selected, key=keys[1], trust_build=True).written
    toy.commit(own / "onnx-int8-dynamic", "onnx-int8-dynamic", {"model.onnx": toy.onnx_model(0.0)})
    with pytest.raises(ArtifactError, match="onnx-int8-dynamic"):
        apps.write_assets("android", own, app, selected, key=keys[1], trust_build=True)


def test_an_app_takes_its_limit_from_signed_results_only(
    own: Path, keys: tuple[Path, Path], tmp_path: Path, reached: list[str]
) -> None:
    verdicts = read_artifact(own / "executorch").verdicts
    amend(own / "executorch", verdicts, {"scores-cpu.safetensors": b"others"})
    assert verified(own, keys[1])["executorch"] == ""
    with pytest.raises(ArtifactError, match=r"executorch/result\.json' is not what was signed"):
        apps.write_assets(
            "android", own, toy.android_app(tmp_path / "app"), ("executorch",), key=keys[1], trust_build=True
        )


def test_a_word_list_that_nobody_signed_goes_into_no_app(own: Path, keys: tuple[Path, Path], tmp_path: Path) -> None:
    (own / "model" / "presence.json").write_text("{}")
    app = toy.android_app(tmp_path / "app")
    with pytest.raises(ArtifactError, match=r"not signed: model/presence\.json"):
        apps.write_assets("android", own, app, ("executorch",), key=keys[1], trust_build=True)


def test_a_key_that_cannot_be_used_is_one_sentence(
    own: Path, keys: tuple[Path, Path], tmp_path: Path, reached: list[str]
) -> None:
    private, public = keys
    locked, _ = write_keys(tmp_path, "locked", passphrase=b"secret")
    rsa, rsa_public = write_keys(tmp_path, "rsa", "RSA")
    odd, odd_public = write_keys(tmp_path, "odd", "SECP256K1")
    text = tmp_path / "text"
    text.write_text("hello")
    broken = tmp_path / "broken"
    broken.write_text("-----BEGIN PUBLIC KEY-----\nhello\n")
    for key, said in (
        (public, "is a public key"),
        (locked, "has a passphrase"),
        (rsa, "is not a private ECDSA key of P-256, P-384 or P-521"),
        (odd, "is not a private ECDSA key"),
        (text, "does not hold a key in PEM format"),
        (Path("/dev/zero"), "cannot read the key"),
        (tmp_path, "cannot read the key"),
        (tmp_path / "none", "cannot read the key"),
    ):
        with pytest.raises(UsageError, match=said):
            signature.signer_of(key)
    for key, said in (
        (private, "is a private key"),
        (rsa_public, "is not a public ECDSA key"),
        (odd_public, "is not a public ECDSA key"),
        (text, "does not hold a key in PEM format"),
        (broken, "is not a public ECDSA key"),
        (tmp_path / "none", "cannot read the key"),
    ):
        with pytest.raises(UsageError, match=said):
            verified(own, key)
    assert reached == []


@pytest.mark.parametrize("curve", ["SECP384R1", "SECP521R1"])
def test_larger_keys_sign_too(own: Path, tmp_path: Path, curve: str) -> None:
    private, public = write_keys(tmp_path, "large", curve)
    sign(own, private)
    signature.require_signed(own, public)


def test_a_key_is_asked_for_before_an_export_begins(keys: tuple[Path, Path], tmp_path: Path) -> None:
    assert exit_code("export", "-t", "onnx", "-o", tmp_path / "build", "--sign", keys[1]) == 2
    assert not (tmp_path / "build").exists()


def test_a_signature_that_is_required_needs_a_key(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("verify", own, "--require-signature") == 2
    assert "--require-signature needs --key PUB" in capsys.readouterr().err
    assert exit_code("assets", "android", own, "--into", own, "--require-signature") == 2
    assert "--require-signature needs --key PUB" in capsys.readouterr().err


def test_without_the_library_it_is_named(own: Path, keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "model_signing"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "model_signing", None)
    with pytest.raises(DependencyError, match="need model-signing .*: " + re.escape(install_command("sign"))):
        signature.signer_of(keys[0])
    with pytest.raises(EdgekitError, match="signatures need model-signing"):
        verified(own, keys[1])
