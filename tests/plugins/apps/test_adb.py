"""The phone on the cable: the real `adb`, a daemon of the tests' own as the phone, the real bench app on a JVM."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

from edgekit import Axis, Input, ModelSpec, Output, api, registry
from edgekit.artifact.result import CANDIDATE
from edgekit.artifact.store import read_artifact
from edgekit.hosts.catalogue import further_place
from edgekit.pipeline.outcome import TargetOutcome
from edgekit.testing import small_model
from edgekit_apps import adb
from tests import kotlin
from tests.builds import unjudged
from tests.kotlin import ANDROID, CHECK, STUBS
from tests.manifests import read_result, spoilt
from tests.plugins.apps.phone import AM, Fault, Phone
from tests.processes import heeding, soon

ORT = "onnxruntime"


@pytest.fixture
def build(small_build: Path, tmp_path: Path) -> Path:
    """A copy of the small model's build, in place of the apps' toy."""
    return Path(shutil.copytree(small_build, tmp_path / "small"))


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The command that runs the bench app; `%s` is where the phone's media folder is."""
    kotlin.require()
    out = tmp_path_factory.mktemp("bench")
    sources = [ANDROID / part / "src" / "main" / "kotlin" for part in ("edgekit", "bench")]
    (out / "app").mkdir()
    kotlin.kotlinc(out / "app", *sources, *STUBS)
    role = CHECK / "phone"
    stubs = ("-sourcepath", kotlin.classpath(role, *STUBS))
    kotlin.run("javac", "-d", out / "phone", *stubs, *sorted(role.rglob("*.java")))
    (out / ORT).mkdir()
    (out / "phone" / "ai").rename(out / ORT / "ai")
    jars = kotlin.classpath(out / "phone", out / ORT, out / "app", *kotlin.RUN)
    settings = f"-Dphone.media=%s -Dphone.python={sys.executable} -Dphone.runtime={role / 'runtime.py'}"
    return f"java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC {settings} -cp {jars} Am"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A server of adb's on a port of its own: the user's, with their phones, is left alone."""
    if shutil.which("adb") is None:
        pytest.skip("no 'adb' on PATH: apt-get install adb")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    home = {"HOME": str(tmp_path_factory.mktemp("home")), "ANDROID_ADB_SERVER_PORT": str(port)}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in home.items():
            patch.setenv(name, value)
        subprocess.run(["adb", "start-server"], check=True, capture_output=True)
        yield port
        subprocess.run(["adb", "kill-server"], check=True, capture_output=True)


@contextmanager
def connected(root: Path, app: str, trusts: bool = True) -> Iterator[Phone]:
    """A phone that adb knows, until the end."""
    root.mkdir()
    phone = Phone(root, app % (root / "sdcard/Android/media/org.edgekit.bench"))
    phone.trusts = trusts
    subprocess.run(["adb", "connect", phone.serial], check=trusts, capture_output=True)
    try:
        yield phone
    finally:
        phone.unplug()
        subprocess.run(["adb", "disconnect", phone.serial], check=False, capture_output=True)


@pytest.fixture
def phone(server: int, app: str, tmp_path: Path) -> Iterator[Phone]:
    with connected(tmp_path / "phone", app) as one:
        yield one


def verified(build: Path, place: str = "adb", trust_build: bool = False) -> TargetOutcome:
    found = api.verify(build, places=[place], targets=["onnx"], images=2, progress="none", trust_build=trust_build)
    return found["onnx"]


def test_a_phone_answers_everything_and_is_judged_here(build: Path, phone: Phone) -> None:
    found = api.verify(build, places=["adb"], targets=["onnx"], progress="none")["onnx"]
    [place] = found.places
    assert (place.place, place.status) == ("adb", "verified"), found.reasons
    assert place.device.startswith("ONNX Runtime")
    assert place.device.endswith("Debian JVM in a phone's role")
    assert place.timings[CANDIDATE].runs >= 100
    assert place.evidence is not None
    assert (place.evidence.not_asked, place.evidence.repeated) == ((), 81)
    said = " ".join(map(str, place.notes))
    for words in ("system: Android 15 API level 35", "processor: x86_64", "battery: 31.2 °C", "fresh process opens it"):
        assert words in said
    assert "thermal state: not throttled, then throttled lightly" in said
    assert read_result(build / "imported" / "adb-onnx").host["hardware"] == "Debian JVM in a phone's role"
    assert "throttled lightly" in (build / "report.html").read_text()
    assert phone.left() == []


def test_a_wrong_artifact_is_rejected_and_what_the_app_does_not_open_is_not_sent(build: Path, phone: Phone) -> None:
    spoilt(build / "onnx")
    assert verified(build, f"adb:{phone.serial}").status == "rejected"
    made, target = read_artifact(build / "onnx-fp16"), registry.find("onnx-fp16")
    opened = {entry: further_place("adb").opens(made.model_copy(update={"entry": entry}), target) for entry in ENTRIES}
    assert opened == ENTRIES


ENTRIES = {
    "a.onnx": True,
    "a.pte": True,
    "a.tflite": True,
    "a.mnn": True,
    "a.ptl": False,
    "a.mlpackage": False,
    "a.xml": False,
}


def damaged(change: Callable[[bytes], bytes]) -> Fault:
    """The result, changed before it is fetched."""

    def happen(phone: Phone) -> None:
        [result] = phone.here("/sdcard").rglob("result.zip")
        result.write_bytes(change(result.read_bytes()))

    return happen


def flipped(data: bytes) -> bytes:
    return data[:2000] + bytes([data[2000] ^ 1]) + data[2001:]


def at(moment: str, happen: Fault) -> Fault:
    """Something that goes wrong then."""
    return lambda phone: phone.faults.update({moment: happen})


def programs(name: str, text: str) -> Fault:
    return lambda phone: phone.script(name, f"#!/bin/sh\n{text}\n")


def kill_server(phone: Phone) -> None:
    subprocess.run(["adb", "kill-server"], check=True, capture_output=True)


def is_set(**values: object) -> Fault:
    return lambda phone: vars(phone).update(values)


def says(name: str, value: str) -> Fault:
    return lambda phone: phone.properties.update({name: value})


FAULTS: dict[str, tuple[Fault, str]] = {
    "cable lost while copying": (at("send", Phone.unplug), "copying to .*: the connection was lost"),
    "cable lost while running": (at("running", Phone.unplug), "the connection to .* was lost while its app ran"),
    "cable lost while copying back": (at("receive", Phone.unplug), "copying back from .*: "),
    "storage full": (at("send", lambda _: "No space left on device"), "copying to .*No space left on device"),
    "storage denied": (
        programs("mkdir", "echo mkdir: Permission denied; exit 1"),
        "`mkdir -p`: mkdir: Permission denied",
    ),
    "storage denied to the app": (
        lambda phone: phone.here("/sdcard/Android").write_text(""),
        "the app cannot make a folder on the phone's storage",
    ),
    "app killed": (at("running", Phone.kill_app), r"ended while it ran \(Process crashed\)"),
    "app not installed": (is_set(installed=False), "not installed on .*:bench:installDebug"),
    "app says nothing": (
        programs("am", "[ $1 = instrument ] && exec sleep 30"),
        "was silent for 1 s and was stopped",
    ),
    "app's own sentence": (
        programs("chmod", "for file in $3/questions/*; do echo x >> $file; done"),
        "'questions/.*' is damaged or was not copied",
    ),
    "app's garbage": (programs("am", "head -c 3000000 /dev/urandom"), "broke off. Its last line was"),
    "phone's own sentence": (
        programs("am", "echo 'INSTRUMENTATION_STATUS: Error=Unable to find instrumentation info'; exit 1"),
        "does not start the bench app: Unable to find",
    ),
    "phone's garbage": (says("ro.product.model", "a\x1b[2Jb\nc"), "did not describe itself"),
    "another phone in the end": (
        at("running", says("ro.serialno", "another")),
        "was restarted or replaced by another phone",
    ),
    "another processor": (
        says("ro.product.cpu.abilist", "armeabi-v7a"),
        "armeabi-v7a: the bench app has arm64-v8a and",
    ),
    "an old Android": (says("ro.build.version.sdk", "24"), "API level 24: the bench app needs 26"),
    "result cut off": (at("receive", damaged(lambda data: data[:3000])), "cannot be used"),
    "result with another bit": (at("receive", damaged(flipped)), "cannot be used"),
    "result missing": (at("receive", lambda _: "No such file or directory"), "copying back from .* No such file"),
    "adb's server ends": (at("running", kill_server), "the connection to .* was lost while its app ran"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_goes_wrong_is_a_sentence_and_leaves_nothing(
    build: Path, phone: Phone, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "app says nothing":
        monkeypatch.setattr(adb, "SILENT", 1)
    fault, said = FAULTS[name]
    fault(phone)
    _is_refused(build, f"adb:{phone.serial}", said)
    if "lost" not in name and "server" not in name:
        assert [path for path in phone.left() if not path.endswith("/Android")] == []


def _is_refused(build: Path, place: str, said: str, trust_build: bool = False) -> None:
    found = verified(build, place, trust_build)
    assert found.status == "not verified here"
    [reason] = map(str, found.reasons)
    assert re.search(said, reason), reason
    assert reason.isprintable()
    assert not (build / "imported").exists()


def test_a_result_of_another_pack_does_not_come_in(build: Path, phone: Phone) -> None:
    kept: list[bytes] = []
    phone.faults["receive"] = lambda phone: kept.extend(p.read_bytes() for p in phone.here("/sdcard").rglob("*.zip"))
    assert verified(build).status == "verified"
    shutil.rmtree(build / "imported")
    spoilt(build / "onnx")
    phone.faults["receive"] = damaged(lambda _: kept[0])
    _is_refused(build, "adb", "another pack")


def test_a_runtime_that_the_app_lacks_is_no_rejection(build: Path, phone: Phone) -> None:
    phone.script("am", (phone.here("bin/am")).read_text().replace(f"/{ORT}:", "/nothing:"))
    said = "the app does not link the runtime for 'onnx': add com.microsoft.onnxruntime:onnxruntime-android"
    _is_refused(build, "adb", said)


def test_answers_that_differ_the_second_time_are_judged_too(
    build: Path, phone: Phone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHONE_TROUBLE", "drift")
    [place] = verified(build).places
    assert place.status == "verified"
    assert {"evaluation", "evaluation again"} <= {measure.batch for measure in place.measures}


def test_a_runtime_that_gives_up_is_the_artifacts_fault(
    build: Path, phone: Phone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHONE_TROUBLE", "fail")
    found = verified(build)
    assert found.status == "rejected"
    assert "OrtException: it gave up" in str(found.reasons[0])
    assert found.places[0].timings == {}


class Turned(nn.Module):
    """Outputs with the batch in their second axis, and without one."""

    def forward(self, x: torch.Tensor, table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return (x @ table.T).transpose(0, 1), table * 2, x.argmax(-1)


def test_rows_are_found_along_every_axis(phone: Phone, tmp_path: Path) -> None:
    inputs = (Input("x", ("batch", 3, 5)), Input("table", (4, 5)))
    outputs = (Output("turned"), Output("doubled"), Output("largest", dtype="int64"))
    spec = ModelSpec("turned", Turned().eval(), inputs, outputs, {"batch": Axis(1, 1, 4)})
    build = unjudged(spec, tmp_path, ("onnx",))
    found = api.verify(build, places=["adb"], targets=["onnx"], progress="none", trust_build=True)["onnx"]
    assert found.status == "verified", found.reasons


def test_numbers_that_the_library_does_not_take_are_named(phone: Phone, tmp_path: Path) -> None:
    inputs = (Input("x", ("batch", 3)), Input("mask", ("batch", 3), dtype="bool"))
    spec = ModelSpec("masked", Masked().eval(), inputs, (Output("y"),), {"batch": Axis(1, 1, 4)})
    build = unjudged(spec, tmp_path, ("onnx",))
    _is_refused(build, "adb", "takes and gives float32 and int64 alone, and 'mask' is bool", trust_build=True)


class Masked(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.where(mask, x, -x)


def test_mnn_answers_through_its_own_classes(phone: Phone, tmp_path: Path) -> None:
    pytest.importorskip("MNN", reason="no MNN: pip install -e '.[mnn]'")
    build = unjudged(small_model(), tmp_path, ("onnx", "mnn"))
    found = api.verify(build, places=["adb"], targets=["mnn"], progress="none", trust_build=True)["mnn"]
    assert found.status == "verified", found.reasons
    assert found.places[0].device.startswith("MNN, CPU")


def test_which_phone_is_meant(build: Path, phone: Phone, app: str, tmp_path: Path) -> None:
    _is_refused(build, "adb:emulator-5554", f"no phone 'emulator-5554' is connected. Connected: '{phone.serial}'")
    with connected(tmp_path / "second", app) as other:
        _is_refused(build, "adb", f"2 phones are connected. Name one of '.*{other.serial}.*' as --place adb:SERIAL")
    phone.unplug()
    assert soon(lambda: "offline" in subprocess.run(["adb", "devices"], capture_output=True, text=True).stdout)
    _is_refused(build, f"adb:{phone.serial}", "cannot be reached: adb reports 'offline'")
    subprocess.run(["adb", "disconnect", phone.serial], check=True, capture_output=True)
    _is_refused(build, "adb", "no phone is connected")
    with connected(tmp_path / "third", app, trusts=False):
        _is_refused(build, "adb", "does not trust this host")


def test_a_host_without_adb_says_so(build: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    _is_refused(build, "adb", "adb is not installed. Install Android's platform tools")


def test_ctrl_c_ends_the_app_and_leaves_nothing(build: Path, phone: Phone) -> None:
    command = heeding("verify", build, "--place", "adb", "-t", "onnx", "--images", "2", "--trust-build")
    phone.script(
        "am", AM.format(root=phone.root, app="sh -c 'echo INSTRUMENTATION_STATUS: progress=x; exec sleep 60' x")
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        phone.faults["running"] = lambda _: running.send_signal(signal.SIGINT)
        said, _ = running.communicate(timeout=60)
    assert (running.returncode, "Traceback" in said) == (130, False), said
    assert phone.here("stopped").is_file()
    assert phone.left() == []
    assert not (build / "imported").exists()
