"""The example package is built as a wheel and used beside edgekit's wheel, in an environment of its own.

The environment holds the two wheels and nothing else of this checkout. The libraries that both need are those that are
installed here; with EDGEKIT_SLOW=1 pip installs them into the empty environment, as for a user, which takes minutes.
"""

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from edgekit_targets.web import site as site_module

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "examples" / "target-plugin"
NAME = "onnx-json"

pytestmark = [
    pytest.mark.skipif(
        bool(site_module.unavailable_reason()),
        reason=f"a wheel of edgekit holds the page: {site_module.unavailable_reason()}",
    )
]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    for package in (ROOT, PLUGIN):
        command = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--wheel-dir",
            str(folder),
            str(package),
        ]
        quick = {} if os.environ.get("EDGEKIT_SLOW") else {"EDGEKIT_XZ_PRESET": "0"}
        subprocess.run(command, check=True, capture_output=True, env=os.environ | quick)
    return folder


@pytest.fixture(scope="module")
def environment(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    edgekit_wheel, plugin_wheel = (
        str(next(wheels.glob(f"{name}-*.whl"))) for name in ("edgekit_export", "edgekit_onnx_json")
    )
    install = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    if os.environ.get("EDGEKIT_SLOW"):
        subprocess.run(
            [*install, f"{edgekit_wheel}[cpu]", f"{plugin_wheel}[cpu,test]"], check=True, capture_output=True
        )
        return folder
    subprocess.run([*install, "--no-deps", "--no-index", edgekit_wheel, plugin_wheel], check=True, capture_output=True)
    # A folder named in a .pth is searched after the environment's own, and the .pth files in it are not read: the
    # editable installation of this checkout is not there.
    own = next((folder / "lib").glob("python*/site-packages"))
    (own / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder


def edgekit(environment: Path, folder: Path, *arguments: str, **variables: str) -> str:
    """Standard output of the installed command, run where nothing of the checkout lies."""
    command = [str(environment / "bin" / "edgekit"), *arguments]
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=settings, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.nightly
def test_both_come_from_their_wheels(environment: Path, tmp_path: Path) -> None:
    code = "import edgekit, edgekit_onnx_json; print(edgekit.__file__, edgekit_onnx_json.__file__)"
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(environment / "bin" / "python"), "-c", code]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=own, check=True)
    assert all(path.startswith(str(environment)) for path in found.stdout.split())


def test_edgekits_wheel_has_the_licences_and_credits_of_what_it_contains(wheels: Path) -> None:
    with zipfile.ZipFile(next(wheels.glob("edgekit_export-*.whl"))) as wheel:
        files = {name.partition(".dist-info/")[2] or name: name for name in wheel.namelist()}
        for name in ("LICENSE", "NOTICE"):
            assert wheel.read(files[f"licenses/{name}"]) == (ROOT / name).read_bytes()
        notice = wheel.read(files["licenses/NOTICE"]).decode()
        folders = re.findall(r"\b(?:edgekit|edgekit_\w+)(?:/[\w-]+)+", notice)
        assert len(folders) == 4
        for folder in folders:
            assert any(name.startswith(f"{folder}/") for name in files), folder
        assert {f"{folders[-1]}/LICENSE", f"{folders[-1]}/ThirdPartyNotices.txt"} <= set(files)
        lines = json.loads(wheel.read("edgekit_arrcoc/checkpoints/arr-coc-tiny/credits.json"))
        assert lines
        assert all("(CC" in line for line in lines.values())


@pytest.mark.nightly
def test_it_is_listed_with_its_option(environment: Path, tmp_path: Path) -> None:
    assert f"{NAME}\tONNX as JSON" in edgekit(environment, tmp_path, "targets")
    described = json.loads(edgekit(environment, tmp_path, "targets", NAME, "--json"))
    assert described["options"]["properties"]["indent"]["x-unit"] == "spaces"
    assert described["groups"] == ["text"]
    assert json.loads(edgekit(environment, tmp_path, "doctor", "--json"))["targets"][NAME] == "installed"


def test_the_shell_completes_it(environment: Path, tmp_path: Path) -> None:
    told = edgekit(
        environment, tmp_path, _EDGEKIT_COMPLETE="complete_bash", COMP_WORDS="edgekit export -t onnx-js", COMP_CWORD="3"
    )
    assert NAME in told.split()
    told = edgekit(
        environment, tmp_path, _EDGEKIT_COMPLETE="complete_bash", COMP_WORDS=f"edgekit export -O {NAME}", COMP_CWORD="3"
    )
    assert f"{NAME}.indent=0" in told.split()


def test_it_is_exported_judged_and_reported(environment: Path, tmp_path: Path) -> None:
    told = edgekit(environment, tmp_path, "export", "edgekit.testing:small_model", "-t", NAME, "-o", "b", "--json")
    outcome = {one["target"]: one for one in json.loads(told)["artifacts"]}[NAME]
    assert outcome["status"] == "verified", outcome["reasons"]
    report = json.loads((tmp_path / "b" / "small" / "report.json").read_text())
    assert {"target": NAME, "status": "verified"}.items() <= {
        row["target"]: row for found in report["artifacts"] for row in found["rows"]
    }[NAME].items()


@pytest.mark.skipif(not os.environ.get("EDGEKIT_SLOW"), reason="takes half a minute: set EDGEKIT_SLOW=1")
def test_its_own_tests_pass_there(environment: Path, tmp_path: Path) -> None:
    """The contract suite, inherited in two lines."""
    command = [
        str(environment / "bin" / "python"),
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(PLUGIN / "tests"),
    ]
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=settings, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "skipped" not in done.stdout.splitlines()[-1]
