import ast
from pathlib import Path

from pydantic import BaseModel

from edgekit.artifact.manifest import Manifest
from edgekit.pipeline.outcome import BuildRecord
from edgekit.storage.files import dump_json
from edgekit_matrix.report import Matrix

ROOT = Path(__file__).parents[2]
SCHEMAS: dict[type[BaseModel], Path] = {
    Manifest: ROOT / "edgekit" / "artifact" / "manifest.schema.json",
    BuildRecord: ROOT / "edgekit" / "pipeline" / "build.schema.json",
    Matrix: ROOT / "plugins" / "edgekit_matrix" / "matrix.schema.json",
}
SOURCES = ("edgekit", "targets", "plugins", "mil_interpreter")
LONGEST = 800  # lines; one subject a file


def test_each_schema_is_its_records() -> None:
    for record, path in SCHEMAS.items():
        made = dump_json(record.model_json_schema())
        assert path.read_text() == made, f"write this to {path}:\n{made}"


def test_contributing_maps_every_room() -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    rooms = [p for p in (ROOT / "edgekit").iterdir() if p.suffix == ".py" or (p.is_dir() and p.name[0] not in "_.")]
    beside = [
        p.parent for folder in ("targets/edgekit_targets", "plugins") for p in (ROOT / folder).glob("*/__init__.py")
    ]
    missing = [p.name for p in (*rooms, *beside) if p.name[0] != "_" and p.name not in contributing]
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
