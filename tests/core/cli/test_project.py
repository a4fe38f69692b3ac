from pathlib import Path

import pytest

from edgekit.cli.main import defaults
from edgekit.errors import UsageError


def test_a_project_sets_defaults_by_command(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.edgekit]\ntargets = ["onnx"]\nplaces = ["openvino"]\nbudget = ["size=14MB"]\noutput = "out"\n'
    )
    found = defaults(tmp_path)
    assert found["export"] == {"target": ("onnx",), "place": ("openvino",), "budget": ("size=14MB",), "output": "out"}
    assert found["verify"] == {"budget": ("size=14MB",)}


@pytest.mark.parametrize("text", [None, "", "[project]\nname = 'x'\n", "[tool.other]\nedgekit = 1\n"])
def test_a_folder_without_the_table_sets_nothing(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)
    assert not any(defaults(tmp_path).values())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.edgekit\n", "is not TOML"),
        ("[tool.edgekit]\nbudgets = []\n", "budgets: Extra inputs are not permitted. Possible settings: targets"),
        ('[tool.edgekit]\nplaces = "openvino"\n', "places: Input should be a valid tuple"),
        ("[tool]\nedgekit = 3\n", "tool.edgekit"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(UsageError, match=said):
        defaults(tmp_path)
