"""What a matrix's file may say, which cells it makes, and the sentence for each mistake, before anything runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgekit.errors import EdgekitError, UsageError
from edgekit_matrix.file import Cell, cells_of, read_file
from tests.command import exit_code

MODEL = "edgekit.testing:small_model"
GOOD = f'targets = ["onnx-fp16", "onnx"]\n[models]\nsmall = "{MODEL}"\n'


def cells(folder: Path, text: str) -> tuple[Cell, ...]:
    (folder / "matrix.toml").write_text(text)
    return cells_of(read_file(folder / "matrix.toml"))


def test_cells_are_models_times_targets_and_sources_come_first(tmp_path: Path) -> None:
    found = cells(tmp_path, GOOD + f'other = {{model = "{MODEL}", author = "Me"}}\n')
    assert [cell.name for cell in found] == ["small onnx", "small onnx-fp16", "other onnx", "other onnx-fp16"]
    assert found[3].arguments == (MODEL, "-t", "onnx-fp16", "--name", "other", "--author", "Me")
    assert [cell.follows(found[:n]) for n, cell in enumerate(found)] == [None, found[0], None, found[2]]
    assert len({cell.key for cell in found} | {cell.folder for cell in found}) == 8


def test_a_list_of_options_makes_a_cell_each_and_the_first_is_for_what_is_made_of_it(tmp_path: Path) -> None:
    found = cells(tmp_path, GOOD + "[options]\nonnx = [{opset = 21}, {opset = 17}]\n")
    assert [cell.column for cell in found] == ["onnx opset=21", "onnx opset=17", "onnx-fp16"]
    assert found[2].arguments[5:] == ("-O", "onnx.opset=21")
    assert found[2].follows(found) is found[0]
    assert found[1].folder == "cells/small/onnx,opset=17"


def test_what_is_said_of_a_model_is_said_to_its_exports(tmp_path: Path) -> None:
    words = 'axes = ["images:0=batch"], inputs = ["queries:range=-1..1"], data = ".", metric = "top_k:relevance"'
    text = GOOD.replace(f'"{MODEL}"', f'{{model = "{MODEL}", {words}}}')
    said = ("--axes", "images:0=batch", "--inputs", "queries:range=-1..1", "--data", ".", "--metric", "top_k:relevance")
    assert cells(tmp_path, text)[0].arguments[3:-2] == said


def test_limits_and_budgets_of_the_file_are_those_of_each_cell(tmp_path: Path) -> None:
    found = cells(tmp_path, 'limits = "Task"\nbudget = ["size=1MB"]\n' + GOOD)
    assert {cell.arguments[-4:] for cell in found} == {("--budget", "size=1MB", "--limits", "task")}
    assert found[0].key != cells(tmp_path, 'budget = ["size=1MB"]\n' + GOOD)[0].key


def test_cells_are_left_out_and_added(tmp_path: Path) -> None:
    text = GOOD + '[[exclude]]\nmodel = "sm*"\ntarget = "onnx-*"\n'
    text += '[[include]]\nmodel = "small"\ntarget = "torchscript"\n'
    assert [cell.column for cell in cells(tmp_path, text)] == ["onnx", "torchscript"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("targets = [", "is not TOML"),
        (GOOD.replace("targets", "target"), "no key 'target'"),
        (GOOD.replace(f'"{MODEL}"', f'{{model = "{MODEL}", wieghts = "a"}}'), "no key 'models.small.wieghts'"),
        (GOOD.replace(f'"{MODEL}"', "3"), "models.small must be a text or a table"),
        (GOOD.replace(f'"{MODEL}"', "{}"), "models.small.model is missing"),
        ("targets = 3\n" + GOOD.split("\n", 1)[1], "targets must be a list"),
        (GOOD + "[[exclude]]\n", "the matrix has no cells: its [[exclude]]"),
        (GOOD.replace(MODEL, "arr-coc-tyni"), "mean 'arr-coc-tiny'"),
        (GOOD.replace(MODEL, "no_such:model"), "models.small: cannot import 'no_such'"),
        (GOOD.replace(MODEL, "edgekit.testing:no"), "models.small: 'edgekit.testing' has no function 'no'"),
        (GOOD.replace(f'"{MODEL}"', f'{{model = "{MODEL}", data = "no"}}'), "models.small: no folder 'no'"),
        (GOOD.replace(f'"{MODEL}"', f'{{model = "{MODEL}", inputs = ["x:y=1"]}}'), "models.small: inputs of 'x'"),
        (GOOD.replace("small =", '"a/b" ='), "'a/b' is not a valid model name"),
        (GOOD.replace('"onnx"', '"onx"'), "mean 'onnx'"),
        ('limits = "some"\n' + GOOD, "unknown limits 'some'. Use all, or task"),
        (GOOD + "[options]\nonnx = {opst = 1}\n", "target 'onnx' has no option 'opst'"),
        (GOOD + "[options]\nonnx = {opset = 1}\n", "option 'onnx.opset' cannot be 1"),
        (GOOD + "[options]\ntorchscript = {}\n", "options for 'torchscript'"),
        (GOOD + "[options]\nonnx = [{}, {}]\n", "'small onnx' occurs twice"),
        ('places = ["nowhere"]\n' + GOOD, "no place 'nowhere'"),
        ('budget = ["p51=2ms"]\n' + GOOD, "p51"),
        (GOOD + '[[exclude]]\ntarget = "coreml"\n', "leaves no cell out"),
        (GOOD + '[[include]]\nmodel = "smal"\ntarget = "web"\n', "include of 'smal', which is not in the file"),
        (GOOD.replace('"onnx-fp16", "onnx"', ""), "the matrix has no cell"),
        ("[models]\n", "models is empty"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(EdgekitError) as error:
        cells(tmp_path, text)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_a_mistake_is_exit_code_2_and_nothing_is_written(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.toml").write_text(GOOD.replace("onnx-fp16", "onnx-fp61"))
    assert exit_code("matrix", "wrong.toml") == 2
    assert exit_code("matrix", "absent.toml") == 2
    said = capfd.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in said] == ["edgekit", "edgekit"]
    assert [path.name for path in tmp_path.iterdir()] == ["wrong.toml"]


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "matrix.toml").write_text(GOOD)
    assert exit_code("matrix", tmp_path / "matrix.toml", "-o", tmp_path) == 2
    assert "does not belong to a matrix" in capfd.readouterr().err


def test_what_is_no_file_or_never_ends_is_one_sentence(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    deep = tmp_path / "deep.toml"
    deep.write_text(f"a = {'[' * 5000}{']' * 5000}")
    digits = tmp_path / "digits.toml"
    digits.write_text(f"a = 1{'0' * 6000}")
    for path, sentence in (
        (tmp_path / "pipe", "is not a regular file"),
        (Path("/dev/zero"), "is not a regular file"),
        (tmp_path, "is not a regular file"),
        (deep, "is nested too deeply"),
        (digits, "is not TOML"),
        (tmp_path / "none", "cannot read"),
    ):
        with pytest.raises(UsageError, match=sentence):
            read_file(path)
