"""Which input or output of a file is which of the model, in which layout and range: by name, else by position.

A pair by position must fit: type, rank and every fixed size. Nothing is paired by size alone, since two outputs that
are exchanged would then pass. What is assumed is said in a sentence; `--map THEIRS=OURS,FACT=VALUE` replaces it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from edgekit.errors import UsageError, suggestion
from edgekit.model.image_input import TO_FIRST, TO_LAST
from edgekit.model.spec import Array, axes_in
from edgekit.runtime.protocol import FileTensor

FORM = (
    "--map THEIRS=OURS, for example --map pixel_values=images,layout=nhwc,range=0..255; or --map THEIRS=0 to feed a "
    "constant"
)
# Inputs that tools add to a model, with the value that stands for its absence.
ABSENT: Mapping[str, float] = {"token_type_ids": 0.0}
IMAGE_RANK = 4
BYTE = 255.0
_SPAN = re.compile(r"(?P<low>-?\d+(?:\.\d+)?)\.\.(?P<high>-?\d+(?:\.\d+)?)")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
Layout = Literal["nhwc", "nchw", ""]


@dataclass(frozen=True)
class Word:
    """The user's word on a tensor of the file: which of the model's it is, its layout and range; or a constant."""

    file_name: str
    model_name: str
    layout: Layout = ""
    span: tuple[float, float] | None = None
    constant: float | None = None


@dataclass(frozen=True)
class ModelTensor:
    """An input or output of the model: sizes are numbers, or names of axes or their sums; None if unknown."""

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None
    low: float = 0.0
    high: float = 1.0


class Pair(BaseModel):
    """An input or output of a file and the model's.

    Attributes:
        file_name: Its name in the file.
        model_name: Its name in the model.
        dtype: The type of an array: the file's of an input, the model's of an output.
        order: Order of the dimensions that `convert` gives; empty for the same.
        span: The file's range of an input whose model's range is `own_span`; empty for the same.
        scale: Of a quantized tensor: real value = scale * (stored value - zero_point); 0 if it is not.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    file_name: str
    model_name: str
    dtype: str
    order: tuple[int, ...] = ()
    span: tuple[float, ...] = ()
    own_span: tuple[float, ...] = ()
    scale: float = 0.0
    zero_point: int = 0

    def to_file(self, array: Array) -> Array:
        """Return a model's input as the file takes it."""
        if self.order:
            array = array.transpose(self.order)
        kind = np.dtype(self.dtype)
        if self.span:
            low, high = self.own_span
            array = (array - low) / (high - low) * (self.span[1] - self.span[0]) + self.span[0]
        if self.scale:
            array = array / self.scale + self.zero_point
        if kind.kind in "iu" and array.dtype.kind == "f":
            limits = np.iinfo(kind)
            array = np.clip(np.rint(array), limits.min, limits.max)
        return np.ascontiguousarray(array, dtype=kind)

    def to_model(self, array: Array) -> Array:
        """Return a file's output as the model's."""
        if self.scale:
            array = (array.astype(np.float32) - self.zero_point) * np.float32(self.scale)
        if self.order:
            array = array.transpose(self.order)
        return array.astype(self.dtype, copy=False)


class Constant(BaseModel):
    """An input of a file that the model does not have, and its value.

    Attributes:
        file_name: Its name in the file.
        dtype: Its type.
        value: The value.
        shape: Its fixed shape; empty if it has the shape of another input.
        like: The file's input whose shape it has.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    file_name: str
    dtype: str
    value: float
    shape: tuple[int, ...] = ()
    like: str = ""


@dataclass
class Pairs:
    """The pairs of one side, the file's inputs with a constant value, and the sentences on what was assumed."""

    pairs: list[Pair] = field(default_factory=list)
    constants: list[Constant] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def parse_words(texts: Iterable[str]) -> dict[str, Word]:
    """Return the user's words by the file's names.

    Raises:
        UsageError: If a text has another form.
    """
    words: dict[str, Word] = {}
    for text in texts:
        head, *facts = text.split(",")
        file_name, equals, model_name = head.partition("=")
        values = dict(fact.partition("=")[::2] for fact in facts)
        layout, span = values.pop("layout", "").lower(), values.pop("range", "")
        match = _SPAN.fullmatch(span) if span else None
        if (
            not (file_name and equals and model_name)
            or values
            or layout not in ("", "nhwc", "nchw")
            or (span and match is None)
        ):
            raise UsageError(
                f"cannot read --map {text}. Write {FORM}; facts are layout=nhwc or nchw, and range=LOW..HIGH"
            )
        bounds = (float(match["low"]), float(match["high"])) if match is not None else None
        if bounds is not None and bounds[0] == bounds[1]:
            raise UsageError(f"the range of --map {text} is empty. Give two different ends, for example range=0..255")
        if _NUMBER.fullmatch(model_name):
            words[file_name] = Word(file_name, "", constant=float(model_name))
            continue
        words[file_name] = Word(file_name, model_name, "nhwc" if layout == "nhwc" else "nchw" if layout else "", bounds)
    return words


def pair_tensors(
    kind: str,
    file_tensors: Sequence[FileTensor] | None,
    model_tensors: Sequence[ModelTensor],
    words: Mapping[str, Word],
    to_file: bool,
) -> Pairs:
    """Pair the tensors of a file with the model's.

    Args:
        kind: "input" or "output", for sentences.
        file_tensors: The file's, in its order; None if it declares none: then they are the model's, by position.
        model_tensors: The model's, in its order.
        words: The user's words by the file's names.
        to_file: True for inputs.

    Raises:
        UsageError: If one cannot be paired, naming both sides.
    """
    if file_tensors is None:
        file_tensors = [FileTensor(str(number), each.dtype) for number, each in enumerate(model_tensors)]
    tensor_of, free = {each.name: each for each in model_tensors}, [each.name for each in model_tensors]
    result, rest = Pairs(), []
    model_name_of: dict[str, str] = {}
    for tensor in file_tensors:
        name = words[tensor.name].model_name if tensor.name in words else tensor.name
        constant = words[tensor.name].constant if tensor.name in words else ABSENT.get(tensor.name)
        if to_file and constant is not None and name not in tensor_of:
            result.constants.append(_constant(tensor, constant, file_tensors))
            result.notes.append(f"input '{tensor.name}' is always {constant:g}, since the model does not have it")
            continue
        if tensor.name in words and name not in tensor_of:
            raise UsageError(
                f"--map names the {kind} '{name}' of the model, which it does not have. "
                f"{suggestion(name, tensor_of)}It has {', '.join(tensor_of)}"
            )
        if name in free:
            free.remove(name)
            model_name_of[tensor.name] = name
        else:
            rest.append(tensor)
    if len(rest) == len(free):
        for tensor, name in zip(rest, free, strict=True):
            model_name_of[tensor.name] = name
            result.notes.append(f"{kind} '{tensor.name}' is taken as the model's '{name}', by its position")
    lacking = [each.name for each in model_tensors if each.name not in model_name_of.values()]
    constants = {constant.file_name for constant in result.constants}
    unfed = (
        [tensor.name for tensor in file_tensors if tensor.name not in {*model_name_of, *constants}] if to_file else []
    )
    if not to_file and len(file_tensors) < len(model_tensors):
        raise UsageError(
            f"the file has {len(file_tensors)} of the model's {len(model_tensors)} outputs: {_text(file_tensors)}. "
            f"Wrap the model in one that returns only these (it returns {', '.join(tensor_of)})"
        )
    if unfed or (lacking and not to_file):
        raise UsageError(
            f"cannot tell which {kind} of the file is which of the model. The file has {_text(file_tensors)}; the "
            f"model has {', '.join(f'{each.name} {_sizes(each.shape)} {each.dtype}' for each in model_tensors)}. Add "
            f"{FORM}"
        )
    result.notes += [f"the file does not read the model's input '{name}'" for name in lacking]
    extra = [tensor.name for tensor in file_tensors if tensor.name not in {*model_name_of, *constants}]
    result.notes += [f"the file's output '{name}' is not the model's and was not compared" for name in extra]
    for tensor in file_tensors:
        if tensor.name in model_name_of:
            _pair(kind, tensor, tensor_of[model_name_of[tensor.name]], words.get(tensor.name), to_file, result)
    return result


def _constant(tensor: FileTensor, value: float, tensors: Sequence[FileTensor]) -> Constant:
    sizes = tensor.shape or ()
    if all(isinstance(size, int) for size in sizes):
        return Constant(file_name=tensor.name, dtype=tensor.dtype, value=value, shape=sizes)  # type: ignore[arg-type]
    like = next((other.name for other in tensors if other.name != tensor.name and other.shape == sizes), "")
    if not like:
        raise UsageError(
            f"the file's input '{tensor.name}' {_sizes(sizes)} has the shape of no other input, so its size is "
            "unknown. Export the file with a fixed size"
        )
    return Constant(file_name=tensor.name, dtype=tensor.dtype, value=value, like=like)


def _pair(kind: str, tensor: FileTensor, own: ModelTensor, word: Word | None, to_file: bool, result: Pairs) -> None:
    order = _order(tensor, own)
    if order is None:
        raise UsageError(
            f"the file's {kind} '{tensor.name}' is {_sizes(tensor.shape)} {tensor.dtype}, and the model's '{own.name}' "
            f"is {_sizes(own.shape)} {own.dtype}. Declare the sizes that the file takes with --axes or --inputs, or "
            f"name another tensor: {FORM}"
        )
    if word is not None and word.layout:
        if own.shape is not None and len(own.shape) != IMAGE_RANK:
            raise UsageError(
                f"'{tensor.name}' has no layout: the model's '{own.name}' is {_sizes(own.shape)}. Leave layout out"
            )
        order = () if word.layout == "nchw" else TO_LAST
    if order:
        result.notes.append(f"{kind} '{tensor.name}' has the layout {'NHWC' if order == TO_LAST else 'NCHW'}")
    # `to_model` goes back.
    back = {(): (), TO_LAST: TO_FIRST, TO_FIRST: TO_LAST}
    span: tuple[float, ...] = word.span if word is not None and word.span is not None else ()
    is_byte = tensor.dtype == "uint8" and np.dtype(own.dtype).kind == "f" and not tensor.scale
    if to_file and not span and is_byte:
        span = (0.0, BYTE)
    if to_file and span:
        result.notes.append(
            f"input '{tensor.name}' takes {span[0]:g} to {span[1]:g} where the model takes {own.low:g} to {own.high:g}"
            + (", rounded to whole numbers" if np.dtype(tensor.dtype).kind in "iu" else "")
        )
    result.pairs.append(
        Pair(
            file_name=tensor.name,
            model_name=own.name,
            dtype=tensor.dtype if to_file else own.dtype,
            order=order if to_file else back[order],
            span=span if to_file else (),
            own_span=(own.low, own.high) if to_file and span else (),
            scale=tensor.scale,
            zero_point=tensor.zero_point,
        )
    )


def _order(tensor: FileTensor, own: ModelTensor) -> tuple[int, ...] | None:
    """Return the order of the model's dimensions that gives the file's; empty for the same, None if none does."""
    kinds = {np.dtype(each).kind.replace("u", "i").replace("b", "i") for each in (tensor.dtype, own.dtype)}
    # A file may quantize floats to integers.
    if len(kinds) == 2 and not (tensor.scale or tensor.dtype == "uint8"):
        return None
    if tensor.shape is None or own.shape is None:
        return ()
    if _fits(tensor.shape, own.shape):
        return ()
    for order in (TO_LAST, TO_FIRST) if len(own.shape) == IMAGE_RANK else ():
        if _fits(tensor.shape, tuple(own.shape[i] for i in order)):
            return order
    return None


def _fits(file_sizes: Sequence[int | str | None], model_sizes: Sequence[int | str]) -> bool:
    return len(file_sizes) == len(model_sizes) and all(
        not isinstance(file_size, int) or bool(axes_in(model_size)) or file_size == model_size
        for file_size, model_size in zip(file_sizes, model_sizes, strict=True)
    )


def _text(tensors: Iterable[FileTensor]) -> str:
    return ", ".join(f"{tensor.name} {_sizes(tensor.shape)} {tensor.dtype}" for tensor in tensors)


def _sizes(shape: Sequence[int | str | None] | None) -> str:
    return f"[{', '.join('any' if size is None else str(size) for size in shape)}]" if shape is not None else "[?]"
