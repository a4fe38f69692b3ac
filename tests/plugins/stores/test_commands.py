"""The commands of stores, as a user calls them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from edgekit_stores.index import index_of
from tests.command import exit_code
from tests.object_store import S3, objects
from tests.processes import heeding

URL = "s3://bucket/small"


def test_push_list_and_pull(s3: S3, build: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (build / "notes.txt").write_text("mine")
    assert exit_code("push", build, URL) == 0
    said = capfd.readouterr().out.splitlines()
    assert said[0] == "left out: notes.txt (edgekit did not write it)"
    assert "the build has 23 files, " in said[1]
    version = said[2].removeprefix(f"{URL}@")
    assert exit_code("builds", URL) == 0
    assert version in capfd.readouterr().out
    assert exit_code("pull", f"{URL}@{version}", "--into", tmp_path / "into") == 0
    assert capfd.readouterr().out.endswith(f"{tmp_path}/into/small: version {version}\n")
    assert exit_code("push", build, URL, "--json") == 0
    record = json.loads(capfd.readouterr().out)
    assert (record["moved_files"], record["left_out"]) == (0, ["notes.txt"])
    assert exit_code("builds", URL, "--json") == 0
    (listed,) = json.loads(capfd.readouterr().out)["versions"]
    assert (listed["version"], listed["name"]) == (record["version"], "small")
    assert listed["verdicts"] == {"onnx": "verified", "onnx-fp16": "verified"}
    assert exit_code("pull", URL, "--into", tmp_path / "into", "--json") == 0
    assert json.loads(capfd.readouterr().out)["moved_files"] == 0


@pytest.mark.nightly
def test_commands_take_a_url(s3: S3, build: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_code("push", build, URL, "-q") == 0
    assert capfd.readouterr().out == ""
    assert exit_code("inspect", f"{URL}@{index_of(build)[0].version}/onnx", "--json") == 0
    assert json.loads(capfd.readouterr().out)["target"] == "onnx"
    assert exit_code("report", URL, "--json") == 0
    assert str(tmp_path / "cache") in json.loads(capfd.readouterr().out)["report"][0]
    assert exit_code("diff", URL, build) == 0
    assert capfd.readouterr().out == "nothing became better or worse\n"
    assert exit_code("verify", URL, "-t", "onnx", "--json") == 0
    assert [one["status"] for one in json.loads(capfd.readouterr().out)["artifacts"]] == ["verified"]
    app = tmp_path / "app"
    assert exit_code("assets", "android", URL, "--into", app) == 2
    assert str(app) in capfd.readouterr().err


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("export", "-o", "s3://bucket/builds"), "builds are made locally"),
        (("push", "nothing", URL), "no build in 'nothing'. Make one with `edgekit export`"),
        (("push", "nothing", f"{URL}@{'0' * 16}"), "a push takes no version"),
        (("pull", "s3://nothing/small"), "The specified bucket does not exist"),
        (("pull", URL), "no build in 's3://bucket/small'. Send one with `edgekit push BUILD"),
        (("pull", URL, "--require-signature"), "--require-signature needs --key"),
        (("verify", f"{URL}@{'0' * 16}"), "has no version '0000000000000000'"),
        (("profile", f"{URL}@{'0' * 16}"), "has no version '0000000000000000'"),
        (("import", "result.zip", URL), "results are taken into builds locally"),
    ],
)
def test_a_mistake_is_one_sentence(
    s3: S3, capfd: pytest.CaptureFixture[str], command: tuple[str, ...], sentence: str
) -> None:
    assert exit_code(*command) == 2
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("edgekit: ")]
    assert len(said) == 1
    assert sentence in said[0]


def test_ctrl_c_ends_a_push_at_once_and_the_next_one_goes_on(s3: S3, build: Path) -> None:
    held = threading.Event()
    s3.after = lambda number: held.wait(120) if number >= 10 else None
    command = heeding("push", build, URL)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ.copy())
    while len(objects(s3)) < 10:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)  # while the store answers nothing
    held.set()
    assert process.returncode == 130
    assert "interrupted; finished steps are kept. Run the same command to continue" in said
    assert "Traceback" not in said
    s3.quiet()
    assert exit_code("push", build, URL) == 0
    assert 0 < len(objects(s3)) < 20
