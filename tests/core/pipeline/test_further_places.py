"""Further places: the real engine in processes of its own, real ONNX Runtime and OpenVINO, a real sshd."""

import getpass
import hashlib
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit import api, registry
from edgekit.artifact.fact import Code
from edgekit.artifact.result import CANDIDATE
from edgekit.artifact.store import read_artifact
from edgekit.errors import ArtifactError, UsageError, VerdictError
from edgekit.hosts import command
from edgekit.hosts.catalogue import further_place
from edgekit.model.sources import resolve_model
from edgekit.report.rows import read_study
from edgekit.report.text import to_junit
from edgekit.testing import SMALL
from tests.manifests import read_result, spoilt
from tests.processes import soon

SSHD = shutil.which("sshd") or (Path("/usr/sbin/sshd").is_file() and "/usr/sbin/sshd") or ""
needs_sshd = pytest.mark.skipif(not SSHD, reason="install OpenSSH's server: apt-get install openssh-server")


@pytest.fixture(scope="module")
def result(small_build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack that was answered: what a far host brings back."""
    folder = tmp_path_factory.mktemp("far")
    api.pack(small_build, folder / "pack.zip", places=["ort-basic"], targets=["onnx", "onnx-fp16"], progress="none")
    with zipfile.ZipFile(folder / "pack.zip") as packed:
        packed.extractall(folder)
    subprocess.run([sys.executable, "-I", "-c", BARE], cwd=folder, check=True, capture_output=True)
    return folder / "result.zip"


BARE = """
import runpy, sys
sys.path.insert(0, '.')
sys.argv = ['evaluate']
runpy.run_module('edgekit.evaluate', None, '__main__')
"""


def test_a_host_that_returns_another_packs_result_verifies_nothing(
    build: Path, result: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is right, and of these artifacts; only the pack that was sent is another one."""
    monkeypatch.setattr(command, "answer_pack", lambda place, folder, progress: result)
    found = api.verify(build, places=["ort-basic@ssh:me@far"], targets=["onnx"], progress="none")
    (place,) = found["onnx"].places
    assert place.status == "not verified here"
    assert "another pack" in str(place.reasons[0])


@pytest.mark.nightly
def test_every_onnx_artifact_has_a_verdict_in_every_place_and_the_report_shows_it(build: Path) -> None:
    found = api.verify(build, places=["openvino", "ort-basic"], progress="none")
    assert sorted(found) == ["onnx", "onnx-fp16"]
    for outcome in found.values():
        assert [(place.place, place.status) for place in outcome.places] == [
            ("openvino", "verified"),
            ("ort-basic", "verified"),
        ]
        assert outcome.places[0].device.startswith("OpenVINO 20")
        assert CANDIDATE in outcome.places[1].timings
        said = " ".join(map(str, outcome.places[1].notes))
        assert "a fresh process opens it in" in said
        assert "nodes in CPUExecutionProvider" in said
    rows = {(row.target, row.place): row.status for row in read_study(build).rows}
    assert rows["onnx", "openvino"] == rows["onnx-fp16", "ort-basic"] == "verified"
    assert rows["onnx", "cpu"] == "verified"
    assert "openvino" in (build / "report.html").read_text()


def test_a_wrong_artifact_is_rejected_in_every_place(build: Path) -> None:
    spoilt(build / "onnx")
    found = api.verify(build, places=["openvino", "ort-off"], targets=["onnx"], progress="none")["onnx"]
    assert [place.status for place in found.places] == ["rejected", "rejected"]
    assert found.status == "rejected"


def test_fewer_inputs_are_said_to_be_fewer(build: Path) -> None:
    [place] = api.verify(build, places=["ort"], images=4, targets=["onnx"], progress="none")["onnx"].places
    assert place.evidence is not None
    assert place.evidence.inputs["evaluation"] == 4
    assert any("rows" in left for left in place.evidence.not_asked)


def test_an_export_asks_further_places_too_and_is_held_to_a_budget(build: Path) -> None:
    made = api.export(
        SMALL, targets=["onnx"], output=build.parent, places=["ort-basic"], budget=["size=1kB"], progress="none"
    )
    found = made["onnx"]
    assert [place.place for place in found.places] == ["cpu", "ort-basic"]
    assert [(place.place, place.fact.code) for place in found.over] == [
        (place, Code.OVER_BUDGET) for place in ("cpu", "ort-basic")
    ]


@pytest.mark.nightly
def test_a_budget_is_held_in_every_place(build: Path) -> None:
    met = api.verify(build, places=["ort"], images=2, budget=["size=1GB,memory=64GB", "p50=100s"], progress="none")
    assert {outcome.status for outcome in met.values()} == {"verified"}
    over = api.verify(build, places=["ort"], images=2, budget=["fp16.size=1kB"], progress="none")
    assert over["onnx"].status == "verified"
    assert over["onnx-fp16"].status == "over budget"
    assert "over the budget of 1kB" in str(over["onnx-fp16"].reasons[0])
    row = next(row for row in read_study(build).rows if (row.target, row.place) == ("onnx-fp16", "ort"))
    assert (row.status, str(row.reasons[-1])) == ("over budget", str(over["onnx-fp16"].reasons[0].fact))
    assert 'type="over budget"' in to_junit(read_study(build))
    assert 'class="over-budget"' in (build / "report.html").read_text()
    with pytest.raises(VerdictError, match="'onnx-fp16' is over budget"):
        over.raise_for_verdict()


def test_a_result_that_comes_back_is_judged_here(build: Path, result: Path) -> None:
    found = api.import_result(build, result, progress="none")
    assert {name: outcome.status for name, outcome in found.items()} == {"onnx": "verified", "onnx-fp16": "verified"}
    kept = read_result(build / "imported" / "ort-basic-onnx")
    assert kept.places[0].evidence is not None
    assert kept.places[0].evidence.inputs["evaluation"] > 0


@pytest.mark.nightly
def test_a_result_that_ships_with_a_model_is_judged_where_its_artifacts_are(
    build: Path, result: Path, tmp_path: Path
) -> None:
    shutil.copytree(build / "reference", tmp_path / "shipped" / "reference")
    (tmp_path / "shipped" / "results").mkdir()
    shutil.copy(result, tmp_path / "shipped" / "results")
    spec = replace(resolve_model(SMALL), reference=tmp_path / "shipped" / "reference")
    api.export(spec, targets=["onnx"], output=build.parent, progress="none")
    kept = build / "imported" / "ort-basic-onnx" / "result.json"
    before = kept.stat().st_mtime_ns
    assert not (build / "imported" / "ort-basic-onnx-fp16").exists()  # it was not asked for in this run
    api.export(spec, targets=["onnx"], output=build.parent, progress="none")
    assert kept.stat().st_mtime_ns == before
    kept.unlink()
    spoilt(build / "onnx")
    api.export(spec, targets=["onnx"], output=build.parent, progress="none")
    assert not kept.exists()


def test_a_result_of_other_files_does_not_come_in(build: Path, result: Path) -> None:
    spoilt(build / "onnx")
    with pytest.raises(ArtifactError, match="another onnx"):
        api.import_result(build, result, progress="none")
    assert not (build / "imported").exists()


def test_a_result_of_a_thousand_brackets_is_refused_in_a_sentence(build: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "deep.zip", "w") as archive:
        archive.writestr("result.json", "[" * 100_000)
    with pytest.raises(ArtifactError, match=r"cannot be used \(it is nested too deep\)"):
        api.import_result(build, tmp_path / "deep.zip", progress="none")


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_a_result_that_is_no_regular_file_is_refused_at_once(build: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "result.zip"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(ArtifactError, match="is not a regular file"):
        api.import_result(build, path, progress="none")


def edited(result: Path, path: Path, change: Callable[..., object], seal: bool) -> Path:
    """A result with a change; sealed again as somebody would who knows how."""
    with zipfile.ZipFile(result) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    record = json.loads(files["result.json"])
    change(record, files)
    if seal:
        whole = {key: value for key, value in record.items() if key != "sha256"}
        record["sha256"] = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()
    files["result.json"] = json.dumps(record).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def answers(record: dict[str, Any], files: dict[str, bytes], change: Callable[[dict[str, Any]], None]) -> None:
    run = record["runs"][0]
    with np.load(io.BytesIO(files[run["answers"]])) as stored:
        arrays = {name: stored[name] for name in stored.files}
    change(arrays)
    made = io.BytesIO()
    np.savez(made, **arrays)
    files[run["answers"]] = made.getvalue()
    run["answers_sha256"] = hashlib.sha256(files[run["answers"]]).hexdigest()


def with_nan(arrays: dict[str, Any]) -> None:
    name = next(name for name, array in arrays.items() if array.dtype.kind == "f")
    arrays[name] = np.full_like(arrays[name], np.nan)


def with_objects(arrays: dict[str, Any]) -> None:
    arrays["evaluation/relevance"] = np.array([{}], dtype=object)


REFUSED: dict[str, tuple[Callable[..., object], bool, str]] = {
    "edited": (lambda r, f: r["runs"][0].update(device="a better one"), False, "has changed since it was made"),
    "other pack": (lambda r, f: r["pack"].update(images=1), True, "its pack has changed since it was made"),
    "not a number": (lambda r, f: answers(r, f, with_nan), True, "contains a non-numeric value"),
    "objects": (lambda r, f: answers(r, f, with_objects), True, "cannot be used"),
    "answers gone": (lambda r, f: f.pop(r["runs"][0]["answers"]), True, "cannot be used"),
    "another hash": (lambda r, f: r["runs"][0].update(answers_sha256="0" * 64), True, "have changed since"),
    "path": (lambda r, f: r["runs"][0].update(place="../../x"), True, "cannot be used"),
    "escape": (lambda r, f: r["runs"][0].update(device="\x1b[2J"), True, "cannot be printed"),
    "infinite time": (lambda r, f: r["runs"][0]["milliseconds"].update(run=[float("inf")]), True, "cannot be used"),
    "rows never asked": (lambda r, f: r["runs"][0].update(again={"evaluation again": [10**6]}), True, "never run"),
    "no runs": (lambda r, f: r.pop("runs"), True, "cannot be used"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_honest_result_does_not_come_in(build: Path, result: Path, tmp_path: Path, name: str) -> None:
    change, seal, said = REFUSED[name]
    path = edited(result, tmp_path / "edited.zip", change, seal)
    with pytest.raises((ArtifactError, UsageError), match=said):
        api.import_result(build, path, progress="none")
    assert not (build / "imported").exists()


def wrong(arrays: dict[str, Any]) -> None:
    arrays["evaluation/relevance"] = arrays["evaluation/relevance"] + np.float32(0.01)


def fewer(arrays: dict[str, Any]) -> None:
    for name in [name for name in arrays if name.startswith("stress/")]:
        del arrays[name]


@pytest.mark.parametrize("change", [wrong, fewer])
def test_wrong_and_lost_answers_with_right_hashes_are_rejected(
    build: Path, result: Path, tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    path = edited(result, tmp_path / "changed.zip", lambda r, f: answers(r, f, change), True)
    assert api.import_result(build, path, progress="none")["onnx"].status == "rejected"


def test_what_a_runner_says_of_itself_is_shown_as_its_word(build: Path, result: Path, tmp_path: Path) -> None:
    path = edited(result, tmp_path / "liar.zip", lambda r, f: r["runs"][0].update(device="a supercomputer"), True)
    [place] = api.import_result(build, path, progress="none")["onnx"].places
    assert place.device == "a supercomputer"
    kept = read_result(build / "imported" / "ort-basic-onnx")
    assert kept.host["said by"] == "the runner in ort-basic"


def test_a_file_that_is_no_result_is_one_sentence(build: Path, tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(b"PK nothing")
    for path in (tmp_path / "x.zip", tmp_path / "missing.zip", tmp_path):
        with pytest.raises(ArtifactError):
            api.import_result(build, path, progress="none")


def test_packs_say_what_they_cannot_take(build: Path, tmp_path: Path) -> None:
    made, target = read_artifact(build / "onnx"), registry.find("onnx")
    assert further_place("ort").opens(made, target)
    assert not further_place("ort").opens(made.model_copy(update={"entry": "model.xml"}), target)
    assert further_place("openvino").opens(made.model_copy(update={"entry": "model.xml"}), target)
    assert further_place("cpu").opens(made, target)
    assert not further_place("interpreter").opens(made, target)
    with pytest.raises(UsageError, match="'cpu' runs on this host only"):
        api.pack(build, tmp_path / "p.zip", places=["cpu"], progress="none")
    with pytest.raises(UsageError, match="Name the runtime alone"):
        api.pack(build, tmp_path / "p.zip", places=["ssh:me@pi"], progress="none")
    with pytest.raises(UsageError, match="takes no carried pack"):
        api.pack(build, tmp_path / "p.zip", places=["adb"], progress="none")
    with pytest.raises(UsageError, match="cannot write"):
        api.pack(build, tmp_path / "no" / "p.zip", places=["ort"], targets=["onnx"], progress="none")
    with pytest.raises(UsageError, match="no artifact of 'web'"):
        api.pack(build, tmp_path / "p.zip", places=["ort"], targets=["web"], progress="none")
    assert not list(tmp_path.glob("*.zip*"))


def test_a_host_that_is_not_there_loses_nothing(build: Path) -> None:
    api.verify(build, places=["ort"], targets=["onnx"], images=2, progress="none")
    kept = (build / "imported" / "ort-onnx" / "result.json").read_bytes()
    found = api.verify(build, places=["ort@ssh:nobody@host.invalid"], targets=["onnx"], progress="none")["onnx"]
    assert found.status == "not verified here"
    assert "host.invalid" in str(found.reasons[0])
    assert (build / "imported" / "ort-onnx" / "result.json").read_bytes() == kept
    assert [path.name for path in (build / "imported").iterdir()] == ["ort-onnx"]


@pytest.mark.parametrize(
    ("place", "provider"), [("ort-cuda", "CUDAExecutionProvider"), ("ort-tensorrt", "TensorrtExecutionProvider")]
)
def test_a_gpu_that_is_not_there_is_no_rejection(place: str, provider: str, build: Path) -> None:
    import onnxruntime

    found = api.verify(build, places=[place], targets=["onnx"], progress="none")["onnx"]
    if provider in onnxruntime.get_available_providers():
        assert found.status in ("verified", "not verified here")
    else:
        assert found.status == "not verified here"
        assert "pip install" in str(found.reasons[0])


@pytest.fixture
def sshd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A real sshd of this user's own on a free port of the loopback; `ssh` on PATH knows it as host 'box'."""
    home = tmp_path / "ssh"
    home.mkdir(mode=0o700)
    for name in ("host", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(home / name)], check=True)
    shutil.copyfile(home / "key.pub", home / "allowed")
    (home / "allowed").chmod(0o600)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = [f"Port {port}", "ListenAddress 127.0.0.1", f"HostKey {home / 'host'}", "UsePAM no", "StrictModes no"]
    settings += [f"AuthorizedKeysFile {home / 'allowed'}", "PasswordAuthentication no", f"PidFile {home / 'pid'}"]
    (home / "sshd_config").write_text("\n".join(settings) + "\n")
    (home / "config").write_text(
        f"Host box\n HostName 127.0.0.1\n Port {port}\n User {getpass.getuser()}\n IdentityFile {home / 'key'}\n"
        f" IdentitiesOnly yes\n StrictHostKeyChecking no\n UserKnownHostsFile {home / 'known'}\n LogLevel ERROR\n"
    )
    (home / "bin").mkdir()
    (home / "bin" / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {home / "config"} "$@"\n')
    (home / "bin" / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", str(home / "bin"), prepend=":")
    if Path("/run").is_dir() and getpass.getuser() == "root":
        Path("/run/sshd").mkdir(exist_ok=True)
    server = subprocess.Popen([SSHD, "-D", "-e", "-f", str(home / "sshd_config")], stderr=subprocess.DEVNULL)
    try:
        assert soon(lambda: _listens(port))
        yield f"ort-basic@ssh:box:{sys.executable}"
    finally:
        server.terminate()
        server.wait(10)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@needs_sshd
def test_another_host_answers_over_ssh_and_keeps_nothing(build: Path, sshd: str, tmp_path: Path) -> None:
    found = api.verify(build, places=[sshd], targets=["onnx"], images=4, progress="none")["onnx"]
    assert found.status == "verified", found.reasons
    assert found.places[0].place == "ort-basic@ssh:box"
    gone = api.verify(build, places=["ssh:box:/no/python"], targets=["onnx"], images=4, progress="none")["onnx"]
    assert gone.status == "not verified here"
    assert "/no/python" in str(gone.reasons[0])
