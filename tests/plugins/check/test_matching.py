"""Pairs of a file's tensors and the model's: by name, else by position if type and sizes fit, never by size alone."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.errors import UsageError
from edgekit.model.image_input import TO_FIRST, TO_LAST
from edgekit.runtime.protocol import FileTensor
from edgekit_check.matching import ModelTensor, Pair, Pairs, pair_tensors, parse_words

IMAGES = ModelTensor("images", "float32", ("batch", 3, 8, 10))
IDS, MASK = ModelTensor("ids", "int64", ("batch", "length")), ModelTensor("mask", "int64", ("batch", "length"))


def inputs(theirs: list[FileTensor], ours: list[ModelTensor], *words: str) -> Pairs:
    return pair_tensors("input", theirs, ours, parse_words(words), True)


def names(pairs: Pairs) -> dict[str, str]:
    return {pair.file_name: pair.model_name for pair in pairs.pairs}


def test_names_win_over_positions() -> None:
    paired = inputs([FileTensor("mask", "int64", (1, 4)), FileTensor("ids", "int64", (1, 4))], [IDS, MASK])
    assert names(paired) == {"mask": "mask", "ids": "ids"}
    assert not paired.notes


def test_a_position_is_said() -> None:
    paired = inputs([FileTensor("a", "int64", (1, None)), FileTensor("mask", "int64", (1, None))], [IDS, MASK])
    assert names(paired) == {"a": "ids", "mask": "mask"}
    assert paired.notes == ["input 'a' is taken as the model's 'ids', by its position"]


def test_exchanged_outputs_of_other_sizes_are_not_paired_by_size() -> None:
    ours = [ModelTensor("logits", "float32", ("batch", 6)), ModelTensor("embedding", "float32", ("batch", 64))]
    theirs = [FileTensor("a", shape=(1, 64)), FileTensor("b", shape=(1, 6))]
    with pytest.raises(UsageError, match=r"output 'a' is \[1, 64\] float32, and the model's 'logits'"):
        pair_tensors("output", theirs, ours, {}, False)


def test_the_users_words_win() -> None:
    paired = inputs(
        [FileTensor("a", "int64", (1, 4)), FileTensor("b", "int64", (1, 4))], [IDS, MASK], "a=mask", "b=ids"
    )
    assert names(paired) == {"a": "mask", "b": "ids"}


def test_an_input_that_the_model_lacks_is_refused_and_one_that_the_file_lacks_is_said() -> None:
    with pytest.raises(UsageError, match="cannot tell which input"):
        inputs([FileTensor("a", "int64", (1, 4)), FileTensor("b", "int64", (1, 4))], [IDS])
    paired = inputs([FileTensor("ids", "int64", (1, 4))], [IDS, MASK])
    assert paired.notes == ["the file does not read the model's input 'mask'"]


def test_an_output_that_the_model_lacks_is_said_and_one_that_the_file_lacks_is_refused() -> None:
    logits = ModelTensor("logits", "float32", ("batch", 6))
    paired = pair_tensors("output", [FileTensor("logits"), FileTensor("hidden")], [logits], {}, False)
    assert paired.notes == ["the file's output 'hidden' is not the model's and was not compared"]
    with pytest.raises(UsageError, match="the file has 1 of the model's 2 outputs"):
        pair_tensors(
            "output", [FileTensor("logits")], [logits, ModelTensor("hidden", "float32", ("batch", 4))], {}, False
        )


@pytest.mark.parametrize(
    ("shape", "order"), [((1, 3, 8, 10), ()), ((None, 8, 10, 3), TO_LAST), ((1, None, None, None), ())]
)
def test_channels_last_is_seen_by_the_sizes(shape: tuple[int | None, ...], order: tuple[int, ...]) -> None:
    [pair] = inputs([FileTensor("images", shape=shape)], [IMAGES]).pairs
    assert pair.order == order


def test_channels_last_of_an_output_is_turned_back() -> None:
    ours = ModelTensor("mask", "float32", ("batch", 2, 8, 10))
    [pair] = pair_tensors("output", [FileTensor("mask", shape=(1, 8, 10, 2))], [ours], {}, False).pairs
    assert pair.order == TO_FIRST
    assert pair.to_model(np.zeros((1, 8, 10, 2))).shape == (1, 2, 8, 10)


def test_bytes_span_the_models_range() -> None:
    ours = ModelTensor("images", "float32", ("batch", 3, 1, 2), low=-1.0, high=1.0)
    paired = inputs([FileTensor("images", "uint8", (1, 1, 2, 3))], [ours])
    assert "takes 0 to 255 where the model takes -1 to 1, rounded" in paired.notes[-1]
    values = paired.pairs[0].to_file(np.array([[-1.0, 1.0], [0.0, 0.5], [2.0, -3.0]], np.float32).reshape(1, 3, 1, 2))
    assert values.dtype == np.uint8
    assert values.reshape(-1).tolist() == [0, 128, 255, 255, 191, 0]


def test_a_quantized_tensor_is_scaled_and_saturates() -> None:
    pair = Pair(file_name="x", model_name="x", dtype="int8", scale=0.5, zero_point=-3)
    assert pair.to_file(np.array([0.0, 1.0, 1e3, -1e3])).tolist() == [-3, -1, 127, -128]
    back = Pair(file_name="y", model_name="y", dtype="float32", scale=0.5, zero_point=-3)
    assert back.to_model(np.array([-3, -1], np.int8)).tolist() == [0.0, 1.0]


def test_another_type_or_rank_does_not_fit() -> None:
    for tensor in (FileTensor("images", "int64", (1, 3, 8, 10)), FileTensor("images", shape=(1, 3, 80))):
        with pytest.raises(UsageError, match="the model's 'images' is"):
            inputs([tensor], [IMAGES])


@pytest.mark.parametrize(
    "text", ["images", "=x", "x=", "x=y,layout=hwc", "x=y,range=1", "x=y,range=1.2.3..4", "x=y,colour=red"]
)
def test_a_wrong_word_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="cannot read --map"):
        parse_words([text])


def test_words_with_facts() -> None:
    word = parse_words(["x=images,layout=NHWC,range=0..255"])["x"]
    assert (word.model_name, word.layout, word.span) == ("images", "nhwc", (0.0, 255.0))


def test_an_unknown_name_of_the_model_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="Did you mean 'images'"):
        inputs([FileTensor("x", shape=(1, 3, 8, 10))], [IMAGES], "x=imges")


def test_an_input_that_the_model_lacks_can_be_a_constant() -> None:
    shape = ("n", "length")
    theirs = [FileTensor("ids", "int64", shape), FileTensor("token_type_ids", "int64", shape)]
    theirs.append(FileTensor("scale", "float32", (1,)))
    paired = inputs(theirs, [IDS], "scale=0.5")
    assert names(paired) == {"ids": "ids"}
    first, second = paired.constants
    assert (first.file_name, first.value, first.like) == ("token_type_ids", 0.0, "ids")
    assert (second.file_name, second.value, second.shape) == ("scale", 0.5, (1,))
    with pytest.raises(UsageError, match="has the shape of no other input"):
        inputs([FileTensor("ids", "int64", shape), FileTensor("mask", "int64", ("n",))], [IDS], "mask=1")


def test_an_empty_range_and_a_layout_without_pictures_are_refused() -> None:
    with pytest.raises(UsageError, match=r"range of --map x=y,range=5\.\.5 is empty"):
        parse_words(["x=y,range=5..5"])
    with pytest.raises(UsageError, match="has no layout"):
        inputs([FileTensor("a", "int64", (1, 4))], [IDS], "a=ids,layout=nhwc")
