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


def test_the_map_names_every_room() -> None:
    pages = (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    homes = (ROOT / "edgekit", ROOT / "targets" / "edgekit_targets", ROOT / "plugins")
    rooms = [path.name for home in homes for path in home.iterdir() if path.is_dir() and path.name[0] not in "_."]
    assert [name for name in rooms if f"{name}/" not in pages] == []


def test_every_file_says_what_it_is_and_stays_readable() -> None:
    paths = sorted(path for source in SOURCES for path in (ROOT / source).rglob("*.py"))
    texts = {str(path): path.read_text() for path in paths}
    assert [path for path, text in texts.items() if not ast.get_docstring(ast.parse(text))] == []
    assert [path for path, text in texts.items() if len(text.splitlines()) > LONGEST] == []


def test_nothing_names_a_machine() -> None:
    """The repository speaks of the project alone."""
    for path in (ROOT / "edgekit").rglob("*.py"):
        assert "/work/" not in path.read_text(), path
