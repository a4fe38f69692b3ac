import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import onnx
import pytest

from edgekit.artifact.store import commit
from edgekit.cli import build_commands, console
from edgekit.model.sources.checkpoint import write_checkpoint
from edgekit.testing import SMALL, contract
from edgekit_targets.web.demo import EVERY
from edgekit_targets.web.server import Server
from tests import modules
from tests.command import exit_code
from tests.manifests import manifest
from tests.processes import heeding

HEAVY = ("torch", "onnx", "onnxruntime", "matplotlib", "jinja2", "numpy")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("export", "-t", "onxx"), "mean 'onnx'"),
        (("export", "gone.safetensors"), "gone.safetensors"),
        (("export", "arr-coc-tyni"), "mean 'arr-coc-tiny'"),
        (("export", "tests.models:raising"), "raised ValueError: the weights are on another machine"),
        (("export", "tests.models:odd_size"), "the default 100 is not a multiple of 16"),
        (("export", "-O", "opset"), "is not of the form TARGET.NAME=VALUE"),
        (("export", SMALL, "--axes", "images:2=h"), "axis 'h' has no range"),
        (("export", SMALL, "--inputs", "images:kind=photo"), "Possible: image, query, tensor"),
        (("export", SMALL, "--outputs", "logits:role=logits"), "relevance, budgets"),
        (("export", SMALL, "--data", "photos"), "the folder 'photos' does not exist"),
        (("export", SMALL, "--metric", "top_k:relevance"), "--data FOLDER"),
        (("export", "--axes", "images:0=batch"), "'arr-coc-tiny' describes its own"),
        (("export", "gone.pt2"), "no model 'gone.pt2'"),
        (("verify", "nowhere"), "'nowhere' is not a folder"),
        (("reference", "--device", "tpu"), "unknown device 'tpu'. Use cpu or cuda"),
        (("report", "nowhere"), "nowhere"),
        (("demo", "nowhere"), "nowhere/web': manifest.json is missing"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(
    arguments: tuple[str, ...],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3]))
    monkeypatch.chdir(tmp_path)
    assert exit_code(*arguments) == 2
    said = capsys.readouterr()
    assert sentence in said.err
    assert said.err.startswith("edgekit: ")
    assert len(said.err.strip().splitlines()) == 1
    assert said.out == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        ("export", "arr-coc-tyni"),
        ("export", "damaged.onnx"),
        ("export", "tests.models:odd_size"),
        ("export", SMALL, "--inputs", "images:kind=photo"),
        ("export", SMALL, "--data", "photos"),
        ("verify", "no-build"),
    ],
)
def test_verbose_prints_no_traceback_of_an_ordinary_mistake(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("damaged.onnx").write_bytes(b"not ONNX")
    assert exit_code(*arguments, "-v") == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.startswith("edgekit: ")


def test_verbose_prints_where_the_users_own_code_failed(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("export", "tests.models:raising", "--verbose") == 2
    assert 'raise ValueError("the weights are on another machine")' in capsys.readouterr().err


@pytest.mark.nightly
def test_verbose_prints_the_whole_report(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    asked = ("export", "tests.modules:without_translation", "-t", "onnx", "-o", str(tmp_path))
    for more, frames in (((), 0), (("-v",), 1)):
        assert exit_code(*asked, *more) == 2
        said = capsys.readouterr()
        assert "it does not have the operator 'aten._linalg_svd', used at" in said.out
        assert said.err.count("DispatchError: No ONNX function found") >= frames
        assert ("Traceback" in said.err) == bool(frames)
        assert "\x1b" not in said.out + said.err


@pytest.mark.nightly
def test_weights_name_author_and_licence_are_given(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    weights = tmp_path / "mine.safetensors"
    write_checkpoint(weights, {name: tensor + 0.01 for name, tensor in modules.video().module.state_dict().items()})
    signed = ("--name", "mine", "--author", "Me", "--licence", "MIT")
    asked = ("export", "tests.modules:video", "--weights", str(weights), *signed, "-t", "onnx", "-o", str(tmp_path))
    assert exit_code(*asked) == 0, capsys.readouterr()
    graph = onnx.load(tmp_path / "mine" / "onnx" / "model.onnx")
    facts = {entry.key: entry.value for entry in graph.metadata_props}
    assert (facts["name"], facts["author"], facts["licence"]) == ("mine", "Me", "MIT")
    assert exit_code("export", SMALL, "--name", "a/b", "-t", "onnx", "-o", str(tmp_path)) == 2
    assert "'a/b' is not a valid model name" in capsys.readouterr().err


def test_the_demo_can_be_opened_from_the_network_and_says_what_that_means(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "index.html").write_text("<!DOCTYPE html>")
    commit(tmp_path, manifest(target="web", entry="index.html"))
    told: list[str] = []
    pages: list[bytes] = []

    def served(server: Server) -> None:
        said = capsys.readouterr()
        told.append(said.err)
        for line in said.out.splitlines():
            with urlopen(line.split()[0]) as answer:  # noqa: S310 - our own server
                pages.append(answer.read())

    monkeypatch.setattr(Server, "wait", served)
    assert exit_code("demo", tmp_path, "--no-open", "--host", EVERY) == 0
    assert exit_code("demo", tmp_path, "--no-open") == 0
    assert "every device of this network can open the page" in told[0]
    assert told[1] == ""
    assert set(pages) == {b"<!DOCTYPE html>"}
    assert len(pages) >= 2


def test_a_port_that_cannot_be_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("demo", "--port", "70000") == 2
    assert "less than or equal to 65535" in capsys.readouterr().err


def test_an_output_that_cannot_be_written_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert exit_code("export", SMALL, "-t", "onnx", "-o", str(tmp_path / "file")) == 2
    assert f"cannot write to '{tmp_path}/file/small'" in capsys.readouterr().err


def test_json_is_one_object(capsys: pytest.CaptureFixture[str], build: Path) -> None:
    assert exit_code("export", SMALL, "-t", "onnx", "-o", str(build.parent), "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["artifacts"][0]["target"] == "onnx"
    assert said["artifacts"][0]["status"] == "verified"
    assert Path(said["report"]).is_file()
    for command in ("targets", "doctor"):
        assert exit_code(command, "--json") == 0
        assert "targets" in json.loads(capsys.readouterr().out)


THEIRS = """
import sys
import torch
def talking():
    print("a line of the factory's own")
    return torch.nn.Linear(2, 2).eval()
def ending():
    sys.exit(0)
def asking(size):
    return torch.nn.Linear(size, 2).eval()
"""


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with a module of a user's."""
    (tmp_path / "theirs_net.py").write_text(THEIRS)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "theirs_net.py"
    sys.modules.pop("theirs_net", None)


def test_json_is_one_object_where_the_models_code_prints(theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("export", "theirs_net:talking", "--inputs", "input:shape=1,2", "-t", "onnx", "--json") == 0
    said = capsys.readouterr()
    assert [artifact["target"] for artifact in json.loads(said.out)["artifacts"]] == ["onnx"]
    assert "a line of the factory's own" in said.err


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("theirs_net:ending", "the model's code ended the process at {file}:8. Let it return or raise"),
        ("theirs_net:asking", "raised TypeError: asking() missing 1 required positional argument: 'size'\n"),
        ("theirs_net.py:talking", "'theirs_net.py' of 'theirs_net.py:talking' is a file. Write theirs_net:talking"),
        ("./theirs_net:talking", "is not of the form package.module:factory"),
        (":talking", "':talking' is not of the form package.module:factory"),
    ],
)
def test_a_factory_that_cannot_be_used_is_named(
    model: str, sentence: str, theirs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("export", model, "-t", "onnx") == 2
    assert sentence.format(file=theirs) in capsys.readouterr().err


def test_a_rejected_artifact_is_exit_3(capsys: pytest.CaptureFixture[str]) -> None:
    from edgekit.pipeline.outcome import Build, TargetOutcome

    def build(status: str) -> Build:
        return Build((TargetOutcome("onnx", Path("a"), status, "max abs is 1"),), Path("small"), "CPU")

    for status, code in (("rejected", 3), ("failed", 2)):
        with pytest.raises(SystemExit) as left:
            build_commands.conclude(build(status), as_json=False)
        assert left.value.code == code
    build_commands.conclude(build("verified"), as_json=False)
    build_commands.conclude(build("not verified here"), as_json=False)
    assert "max abs is 1" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["export", "verify", "report", "reference", "targets", "doctor"])
def test_every_command_helps_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(command, "--help") == 0
    said = capsys.readouterr().out
    assert "Example" in said
    assert "<bool>" not in said
    assert "<list" not in said


def test_the_help_of_export_groups_its_options_and_cuts_nothing_at_100_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert exit_code("export", "--help") == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 100
    assert "…" not in text
    panels = dict(re.findall(r"─ (\w+) ─+╮\n(.+?)╰─", text, re.DOTALL))
    assert list(panels) == ["Arguments", "Options", "Model", "Data", "Targets", "Gate", "Output"]
    for panel, option in {
        "Model": "inputs",
        "Data": "data",
        "Targets": "target",
        "Gate": "limits",
        "Output": "output",
    }.items():
        assert f"--{option} " in panels[panel]
    assert re.findall(r"--[\w-]+", panels["Options"]) == ["--help"], "each option has a group"
    kinds = ("arr-coc-tiny", "package.module:function", "net.onnx", "model.pt2", "weights.safetensors", "timm:NAME")
    assert all(kind in panels["Arguments"] for kind in (*kinds, "transformers:FOLDER"))


def test_help_and_targets_import_nothing_heavy() -> None:
    code = (
        "import sys; from edgekit.cli import main; sys.argv = ['edgekit', *{arguments!r}]\n"
        "try: main.main()\nexcept SystemExit: pass\n"
        "print([m for m in {heavy!r} if m in sys.modules], file=sys.stderr)"
    )
    for arguments, heavy in ((["--help"], HEAVY), (["targets"], ("torch", "onnx", "onnxruntime", "matplotlib"))):
        done = subprocess.run(
            [sys.executable, "-c", code.format(arguments=arguments, heavy=heavy)],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ,
        )
        assert done.stderr.strip() == "[]"


def test_a_working_directory_that_was_removed_is_a_sentence(tmp_path: Path) -> None:
    code = f"import os; os.chdir({str(tmp_path)!r}); os.rmdir({str(tmp_path)!r}); " + (
        "from edgekit.cli.main import main; main()"
    )
    path = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-P", "-c", code, "targets"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | path, check=False)
    sentence = "edgekit: the working directory was removed. Change to another one and run the command again\n"
    assert (done.returncode, done.stderr) == (2, sentence)


@pytest.mark.nightly(but=("targets", "/dev/full"))
@pytest.mark.parametrize(
    ("command", "closed", "code"),
    [
        ("targets", ">&-", 0),
        ("verify nope", "2>&-", 2),
        ("verify nope", "2>/dev/full", 2),
        ("verify nope", "<&- >&- 2>&-", 2),
    ],
)
def test_a_closed_or_full_stream_changes_no_exit_code(command: str, closed: str, code: int) -> None:
    line = f"{sys.executable} -m edgekit {command} {closed}"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)


def test_piped_output_has_no_colours() -> None:
    done = subprocess.run([sys.executable, "-m", "edgekit", "targets"], capture_output=True, check=True)
    assert b"\x1b" not in done.stdout
    assert b"onnx\t" in done.stdout


@pytest.mark.nightly(but=("2-130",))
@pytest.mark.nightly(but=("model", "exporting"))
@pytest.mark.parametrize(
    ("sent", "code", "when"),
    [(signal.SIGTERM, 143, "model"), (signal.SIGINT, 130, "[1/2] onnx: exporting"), (signal.SIGTERM, 143, "[2/2]")],
)
def test_an_interrupted_run_says_what_is_kept_and_goes_on(
    sent: signal.Signals, code: int, when: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """At three moments: while the model is written, while the first target is made, and in the second one."""
    if when != "model":
        there = ("onnx",) if when == "[2/2]" else ()
        shutil.copytree(contract.small_build(tmp_path_factory.getbasetemp(), there), tmp_path / "small")
    command = heeding("export", SMALL, "-t", "onnx", "-t", "onnx-fp16", "-o", tmp_path)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if when in line:
                break
        running.send_signal(sent)
        said = running.stderr.read()
        assert running.wait() == code
    sentence = "edgekit: interrupted; finished steps are kept. Run the same command to continue"
    assert said.splitlines()[-1] == sentence
    assert not list(tmp_path.rglob("*.tmp"))
    if when == "[2/2]":
        assert json.loads((tmp_path / "small" / "onnx" / "manifest.json").read_text())["verdicts"]


@pytest.mark.nightly(but=("arguments0", "arguments3"))
@pytest.mark.parametrize("arguments", [("--help",), ("export", "--help"), ("targets",), ("targets", "--json")])
def test_a_reader_that_leaves_ends_it_quietly(arguments: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "edgekit", *arguments], stdout=write, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(write)
    assert (ended.returncode, ended.stderr) == (141, "")


def test_a_traceback_keeps_its_lines_and_cannot_look_like_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    console._print_wrapped('onnx: a bug:\n  File "x.py", line 3\nonnx verified\x1b[31m')
    assert capsys.readouterr().out == 'onnx: a bug:\n    File "x.py", line 3\n  onnx verified\\x1b[31m\n'
