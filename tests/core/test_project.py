"""What stands around the code says what the code says: versions, commands, tools."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAKE = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted(p for p in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if p.stem != "config")
KINDS = {"markdown", "input", "textarea", "dropdown", "checkboxes"}


def loaded(path: Path) -> dict[Any, Any]:
    found = yaml.safe_load(path.read_text())
    assert isinstance(found, dict)
    return found


def test_the_citation_is_of_this_version_and_licence() -> None:
    citation = loaded(ROOT / "CITATION.cff")
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])
    assert {"cff-version", "message", "title", "authors"} <= set(citation)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_read_only_and_holds_no_secret(path: Path) -> None:
    workflow = loaded(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets." not in path.read_text()
    for job in workflow["jobs"].values():
        rights = job.get("permissions", {})
        assert not rights or "id-token" in rights  # more rights only where a deployment needs them
        assert all("uses" in step or "run" in step for step in job["steps"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_mixes_no_indexes(path: Path) -> None:
    text = path.read_text()
    assert "EXTRA_INDEX" not in text
    assert "extra-index" not in text


def test_every_action_is_named_by_commit_with_its_tag_in_a_comment() -> None:
    pages = [*ROOT.glob("*.md"), ROOT / "action.yml"]
    pages += [
        p
        for place in ("docs", "examples", ".github")
        for kind in ("md", "yml")
        for p in (ROOT / place).rglob(f"*.{kind}")
    ]
    lines = [line for page in pages for line in re.findall(r"^ *-? *uses: *(.+)$", page.read_text(), re.MULTILINE)]
    assert len(lines) > 20
    by_tag = [line for line in lines if not re.match(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+\b", line)]
    assert {line.partition(" ")[0] for line in by_tag} == {"OWNER/edgekit@COMMIT"}


def test_a_release_is_built_by_tools_of_known_hashes_under_its_own_name() -> None:
    steps = loaded(ROOT / ".github/workflows/release.yml")["jobs"]["build"]["steps"]
    installs = [step["run"] for step in steps if "pip install" in step.get("run", "")]
    assert installs == ["python -m pip install --require-hashes -r .github/build-tools.txt"]
    lines = (ROOT / ".github/build-tools.txt").read_text().splitlines()[1:]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)
    assert {"build", "hatchling"} <= {line.partition("==")[0] for line in lines}
    publish = loaded(ROOT / ".github/workflows/release.yml")["jobs"]["publish"]
    assert publish["environment"]["url"].endswith(f"/{PROJECT['name']}")
    assert PROJECT["name"] == "edgekit-export"


def test_ci_runs_the_commands_that_developers_run() -> None:
    ran = {name for path in WORKFLOWS for name in re.findall(r"run: make ([a-z-]+)", path.read_text())}
    assert {"test"} <= ran
    assert ran - {"docs"} <= MAKE  # the documentation is built where there is one


def test_ci_tests_every_python_that_is_declared() -> None:
    lowest, highest = re.findall(r"3\.(\d+)", PROJECT["requires-python"])
    declared = [f"3.{minor}" for minor in range(int(lowest), int(highest))]
    assert loaded(ROOT / ".github/workflows/test.yml")["jobs"]["test"]["strategy"]["matrix"]["python"] == declared


def test_releases_are_published_by_trusted_publishing() -> None:
    jobs = loaded(ROOT / ".github/workflows/release.yml")["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "permissions" not in jobs["build"]  # what builds cannot publish, and cannot say what was built
    assert (jobs["build"]["needs"], jobs["attest"]["needs"], jobs["publish"]["needs"]) == ("test", "build", "attest")
    assert jobs["attest"]["permissions"] == {"id-token": "write", "attestations": "write"}
    assert any("attest-build-provenance" in step["uses"] for step in jobs["attest"]["steps"])
    (publisher,) = (step for step in jobs["publish"]["steps"] if "pypi-publish" in step["uses"])
    assert "with" not in publisher


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_is_one(path: Path) -> None:
    form = loaded(path)
    assert form["name"]
    assert form["description"]
    fields = form["body"]
    assert {field["type"] for field in fields} <= KINDS
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)
    for field in fields:
        if field["type"] in ("dropdown", "checkboxes"):
            assert field["attributes"]["options"]


def test_hooks_run_the_tools_that_lint_runs() -> None:
    (repository,) = loaded(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    tools = {hook["entry"].split()[0] for hook in repository["hooks"]}
    lint = (ROOT / "Makefile").read_text().partition("\nlint:")[2].partition("\n\n")[0]
    assert {tool.removeprefix(".venv/bin/") for tool in tools if tool != "npm"} == set(
        re.findall(r"\$\(BIN\)/(\S+)", lint)
    )


def test_each_promise_of_security_has_its_test() -> None:
    rows = re.findall(r"^\| .+ \| (`tests/.+`) \|$", (ROOT / "docs" / "security.md").read_text(), re.MULTILINE)
    assert len(rows) > 20
    for path, name in re.findall(r"`([^`:]+)::(\w+)`", " ".join(rows)):
        assert f"def {name}(" in (ROOT / path).read_text(), (path, name)


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md", "README.md"])
def test_pages_name_files_commands_and_sections_that_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    linked = re.findall(r"\]\(([^)#:\s]+)(?:#([\w-]+))?\)", text)
    for path, section in linked:
        assert (ROOT / path).exists(), path
        heads = re.findall(r"^#+ (.+)$", (ROOT / path).read_text(), re.MULTILINE) if section else []
        assert not section or section in [re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in heads]
    named = re.findall(r"`((?:edgekit|tests|targets|web|mobile)/[\w./-]+)`", text)
    for path in (p for p in named if "my_target" not in p):
        assert (ROOT / path).exists(), path
    for command in re.findall(r"`make ([a-z-]+)`|^    make ([a-z-]+)", text, re.MULTILINE):
        assert "".join(command) in MAKE, command


def test_pages_say_how_edgekit_is_really_installed() -> None:
    """No index has it: commands are those of a checkout, and a wheel is named by its distribution."""
    for page in ("README.md", "docs/index.md"):
        text = (ROOT / page).read_text()
        assert "on no package index yet" in text
        commands = re.findall(r"pip install ((?:-c \S+ )?-e '\.\[[\w,]+\]'|'edgekit-export\[[\w,]+\]')", text)
        assert commands[0].startswith("-e"), page
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.md")):
        assert not re.search(r"pip install '?edgekit(?![-\w])", path.read_text()), path


def test_the_readme_tells_the_figures_of_the_benchmarks() -> None:
    table = (ROOT / "docs" / "benchmarks.md").read_text()
    rows = dict(re.findall(r"^\| ([\w-]+) \| ([\d,]+) \|", table, re.MULTILINE))
    full, static = (int(rows[name].replace(",", "")) for name in ("onnx", "onnx-int8-static"))
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert f"Static INT8 is {static / 1e6:.2f} MB of {full / 1e6:.1f} MB in fp32 ({static / full:.3f} of it)" in readme
    rejected = re.findall(r"^\| ([\w-]+) \|.*\| rejected", table, re.MULTILINE)
    assert ("each is verified wherever this host could run it" in readme) is not bool(rejected)
