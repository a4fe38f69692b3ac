"""What another device wrote is refused in a sentence, or shown; it never stops the rest."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from edgekit.artifact.result import RESULT
from edgekit.artifact.run_record import RUN, RunRecord, TargetStatus, read_run, write_run
from edgekit.errors import ArtifactError
from edgekit.report import imports, page, text, write_report
from edgekit.report.imports import add_result, read_imported, write_imported
from edgekit.report.rows import read_study
from tests.command import exit_code

TIMES = {"device": "a", "runs": 3, "p50": 1.0, "p90": 1.0, "p95": 1.0, "p99": 1.0, "mean": 1.0, "std": 0.0}
PLACE: dict[str, Any] = {"place": "nnapi", "device": "Pixel 8", "status": "verified", "reasons": [], "notes": []}
GOOD: dict[str, Any] = {
    "schema_version": 1,
    "name": "arr-coc-tiny",
    "target": "onnx",
    "precision": "fp32",
    "artifact_sha256": "0" * 64,
    "reference_sha256": "1" * 64,
    "reference_device": "a GPU",
    "size": 100,
    "places": [PLACE],
}


def changed(**changes: Any) -> str:
    return json.dumps({**GOOD, **changes})


def placed(**changes: Any) -> str:
    return changed(places=[{**PLACE, **changes}])


def measured(value: object) -> str:
    return placed(measures=[{"batch": "evaluation", "output": "relevance", "metric": "max abs", "value": value}])


BAD = {
    "empty": "",
    "no JSON": "{",
    "a list": "[]",
    "a number": "1",
    "null": "null",
    "NaN": measured(float("nan")),
    "Infinity": measured(float("inf")),
    "minus Infinity": placed(timings={"candidate": {**TIMES, "load": -float("inf")}}),
    "infinite by its exponent": measured(1.0).replace("1.0", "1e999"),
    "NaN among the details": placed(reasons=[{"code": "text", "details": {"text": "a", "b": float("nan")}}]),
    "an integer of 100 digits": changed(size=10**100),
    "an integer of 5000 digits": changed().replace('"size": 100', '"size": ' + "9" * 5000),
    "a negative size": changed(size=-1),
    "a text for a number": changed(size="many"),
    "a list for a text": changed(name=["a"]),
    "no places": changed(places=[]),
    "null for places": changed(places=None),
    "verified where a limit is exceeded": placed(reasons=["too far off"]),
    "rejected where everything holds": placed(status="rejected"),
    "a status of its own": placed(status="perfect"),
    "a field of its own": changed(extra=1),
    "one name twice": changed()[:-1] + ', "size": 1}',
    "depth": changed(host=0).replace('"host": 0', '"host": ' + "[" * 100_000 + "]" * 100_000),
    "an escape": changed(target="onnx\x1b[2J"),
    "a right-to-left mark": placed(place="nn\u202eipa"),
    "half a surrogate pair": changed(target="HALF").replace("HALF", "\\ud800"),
    "a long text": placed(device="a" * 3000),
    "many values": placed(reasons=["a"] * 60_000),
    "a fact without its details": placed(reasons=[{"code": "limit widened"}]),
    "a fact with a text for a number": placed(notes=[{"code": "slower", "details": {"ratio": "x", "baseline": "y"}}]),
    "a time below zero": placed(timings={"candidate": {**TIMES, "p50": -1.0}}),
    "a time of ages": placed(timings={"candidate": {**TIMES, "p50": 1e300}}),
    "no runs": placed(timings={"candidate": {**TIMES, "runs": 0}}),
    "a ratio of zero": placed(ratios=[{"baseline": "onnx", "value": 0.0, "low": 0.0, "high": 0.0}]),
    "a megabyte and a byte": changed() + " " * (1 << 20),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_result_is_refused_at_import(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "phone.json"
    path.write_text(BAD[name])
    assert exit_code("import", path, tmp_path, "--name", "pixel-8") == 2
    said = capsys.readouterr().err
    assert said.startswith("edgekit: the imported result '")
    assert said.count("\n") == 1
    assert said.count("\n") == 1
    assert len(said) < 500
    assert not (tmp_path / "imported").exists()


def test_a_good_result_is_taken_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "phone.json"
    path.write_text(placed(timings={"candidate": TIMES}, notes=["slow"]))
    assert exit_code("import", path, tmp_path, "--name", "pixel-8") == 0
    assert Path(capsys.readouterr().out.strip()).read_bytes() == path.read_bytes()
    assert read_imported(tmp_path / "imported" / "pixel-8").places[0].place == "nnapi"


def test_no_change_of_an_imported_result_or_its_arrays_is_accepted(tmp_path: Path) -> None:
    """Each byte, each cut, each file gone, and a file more."""
    home, arrays = tmp_path / "imported" / "pixel-8", save({"relevance": np.zeros((2, 4), np.float32)})
    write_imported(home, {RESULT: placed(timings={"candidate": TIMES}).encode(), "scores-nnapi.safetensors": arrays})
    assert read_imported(home).target == "onnx"
    for path in sorted(home.iterdir()):
        data = path.read_bytes()
        for at in range(len(data)):
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            with pytest.raises(ArtifactError):
                read_imported(home)
        path.write_bytes(data[:-1])
        with pytest.raises(ArtifactError):
            read_imported(home)
        path.unlink()
        with pytest.raises(ArtifactError):
            read_imported(home)
        path.write_bytes(data)
    (home / "errors-nnapi.safetensors").write_bytes(arrays)
    with pytest.raises(ArtifactError, match=r"is not named in 'seal\.json'"):
        read_imported(home)


def test_no_change_of_the_record_of_runs_is_accepted(tmp_path: Path) -> None:
    write_run(tmp_path, RunRecord(command="edgekit export"), {"onnx": TargetStatus(status="failed", error="why")})
    data = (tmp_path / RUN).read_bytes()
    for at in range(len(data)):
        (tmp_path / RUN).write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(ArtifactError, match=r"run\.json' .*"):
            read_run(tmp_path)


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", ".hidden", "a\x1b[2J", "a" * 101, "ä"])
def test_a_name_that_is_no_plain_one_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "phone.json").write_text(changed())
    assert exit_code("import", tmp_path / "phone.json", tmp_path, f"--name={name}") == 2
    said = capsys.readouterr().err
    assert "is not a valid name" in said
    assert "\x1b" not in said
    assert [p.name for p in tmp_path.iterdir()] == ["phone.json"]


def test_what_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "good.json").write_text(changed())
    (tmp_path / "link").symlink_to("good.json")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "folder", "pipe", "gone"):
        with pytest.raises(ArtifactError, match="imported result"):
            add_result(tmp_path, tmp_path / name, "pixel-8")


def test_bad_results_that_are_there_already_are_shown_as_unreadable(filled: Any) -> None:
    for number, content in enumerate(BAD.values()):
        home = filled.folder / "imported" / f"bad-{number:02}"
        home.mkdir(parents=True)
        (home / RESULT).write_text(content)
    evil = filled.folder / "imported" / "evil\x1b[2J\u202e"
    evil.mkdir()
    os.mkfifo(evil / RESULT)
    linked = filled.folder / "imported" / "linked"
    linked.mkdir()
    (linked / RESULT).symlink_to("/dev/zero")
    study = write_report(filled.folder)
    unreadable = [row for row in study.rows if row.status == "unreadable"]
    assert len(unreadable) == len(BAD) + 2
    assert study.count("verified") > 0  # those of the build, and the phone's good result
    for suffix in ("html", "md", "csv"):
        shown = (filled.folder / f"report.{suffix}").read_text()
        assert not {"\x1b", "\u202e"} & set(shown)
        assert ("evil\\x1b[2J" in shown) == (suffix != "md")  # there stands how many rows of other hosts there are
    json.loads((filled.folder / "report.json").read_text(), parse_constant=pytest.fail)
    assert (filled.folder / "report.html").stat().st_size < 2_000_000


def test_score_maps_beside_a_result_are_asked_for_their_size(tmp_path: Path) -> None:
    home = tmp_path / "imported" / "pixel-8"
    home.mkdir(parents=True)
    (home / RESULT).write_text(changed())
    maps = home / "scores-nnapi.safetensors"
    with maps.open("wb") as stream:
        stream.truncate(imports.LARGEST_MAPS + 1)
    with pytest.raises(ArtifactError, match="is not a regular file of at most"):
        read_imported(home)
    maps.unlink()
    maps.symlink_to("/dev/zero")
    with pytest.raises(ArtifactError, match="is not a regular file of at most"):
        read_imported(home)


@pytest.mark.parametrize("name", ["NaN", "Infinity", "a fact without its details"])
def test_an_own_result_that_is_damaged_stops_nothing_either(name: str, filled: Any) -> None:
    (filled.folder / "onnx" / RESULT).write_text(BAD[name])
    write_report(filled.folder)
    assert all(r.status != "verified" for r in read_study(filled.folder).rows if r.target == "onnx" and not r.origin)


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
ANY = st.recursive(VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner))
FIELDS = st.sampled_from([*GOOD, *PLACE, *TIMES, "measures", "timings", "ratios", "evidence", "host"])

SLOW = bool(os.environ.get("EDGEKIT_SLOW"))


@settings(
    max_examples=300 if SLOW else 12,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(top=st.dictionaries(FIELDS, ANY), place=st.dictionaries(FIELDS, ANY), times=st.dictionaries(FIELDS, ANY))
def test_whatever_is_written_gives_a_report_or_a_sentence(
    tmp_path: Path, top: dict[str, Any], place: dict[str, Any], times: dict[str, Any]
) -> None:
    home = tmp_path / "imported" / "pixel-8"
    timed = {"timings": {"candidate": {**TIMES, **times}}}
    whole = {**GOOD, "places": [{**PLACE, **timed, **place}], **top}
    write_imported(home, {RESULT: json.dumps(whole).encode()})
    study = read_study(tmp_path)
    assert study.rows
    text.to_json(study), text.to_markdown(study), text.to_csv(study)
    if SLOW:
        page.render(study)  # half a second
