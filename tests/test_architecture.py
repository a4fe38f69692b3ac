import ast
from pathlib import Path

from edgekit.artifact.manifest import Manifest
from edgekit.pipeline.outcome import BuildRecord
from edgekit.report.matrix import Matrix
from edgekit.storage.files import dump_json

ROOT = Path(__file__).parents[1]
SCHEMA = ROOT / "edgekit" / "artifact" / "manifest.schema.json"
BUILD_SCHEMA = ROOT / "edgekit" / "pipeline" / "build.schema.json"
MATRIX_SCHEMA = ROOT / "edgekit" / "report" / "matrix.schema.json"
SOURCES = ("edgekit", "targets", "mil_interpreter")
LONGEST = 500  # lines; one subject a file


def test_the_schema_is_the_manifests() -> None:
    made = dump_json(Manifest.model_json_schema())
    assert SCHEMA.read_text() == made, f"write this to {SCHEMA}:\n{made}"


def test_the_schema_of_what_json_prints_is_the_builds() -> None:
    made = dump_json(BuildRecord.model_json_schema())
    assert BUILD_SCHEMA.read_text() == made, f"write this to {BUILD_SCHEMA}:\n{made}"


def test_the_schema_of_a_matrix_is_its_records() -> None:
    made = dump_json(Matrix.model_json_schema())
    assert MATRIX_SCHEMA.read_text() == made, f"write this to {MATRIX_SCHEMA}:\n{made}"


def test_the_readme_maps_every_room() -> None:
    readme = (ROOT / "README.md").read_text()
    rooms = [p for p in (ROOT / "edgekit").iterdir() if p.suffix == ".py" or (p.is_dir() and p.name[0] not in "_.")]
    targets = [p for p in (ROOT / "targets" / "edgekit_targets").glob("*.py") if not p.name.startswith("_")]
    missing = [p.name for p in (*rooms, *targets) if p.name[0] != "_" and p.name not in readme]
    assert not missing


def test_every_file_says_what_it_is_and_stays_readable() -> None:
    paths = sorted(path for source in SOURCES for path in (ROOT / source).rglob("*.py"))
    texts = {str(path): path.read_text() for path in paths}
    assert [path for path, text in texts.items() if not ast.get_docstring(ast.parse(text))] == []
    assert [path for path, text in texts.items() if len(text.splitlines()) > LONGEST] == []


def test_nothing_names_a_machine() -> None:
    """The repository speaks of the project alone."""
    for path in (ROOT / "edgekit").rglob("*.py"):
        assert "/work/" not in path.read_text(), path
