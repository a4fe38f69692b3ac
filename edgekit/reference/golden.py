"""Golden vectors: a few evaluation images with the reference's answers, small enough to travel with an artifact.

Browsers and phones run them on the user's own device before they trust it. The format (`golden.json`, `golden.bin`) is
described in web/README.md. They are the image on which the usual mistakes of preprocessing show most, the one with the
lowest scores (of arr-coc-tiny a photograph that does not answer its query) and, where sizes are open, one more width.
For phones, whose libraries resize every picture, there is one that is not of the model's size.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edgekit.errors import ExportError
from edgekit.model.image_input import pixels_of
from edgekit.model.spec import Array, Input, ModelSpec
from edgekit.reference.batches import EVALUATION
from edgekit.reference.pictures import in_size
from edgekit.reference.store import read_reference
from edgekit.storage.files import dump_json

FORMAT = 1
JSON, BINARY = "golden.json", "golden.bin"
CANDIDATES = 12  # evaluation images that are tried
MOST_WORDS = 6  # of a query that is put into words again
ROUNDING = 1e-4
EXACT = 1e-2
"""Largest difference of an image's value from a byte, in bytes."""
Answer = Callable[[Mapping[str, Array]], Mapping[str, Array]]

FAULTS: Mapping[str, Callable[[Array, Input], Array]] = {
    "channels in reverse order": lambda image, _: image[:, ::-1],
    "bytes that were not scaled": lambda image, i: 255 * (image - i.low) / (i.high - i.low),
    "scaled to [-1, 1]": lambda image, i: 2 * (image - i.low) / (i.high - i.low) - 1,
    "turned by 90 degrees": lambda image, _: image.swapaxes(2, 3),
}
"""What preprocessing gets wrong: name -> a [1, 3, H, W] image with that fault."""


@dataclass(frozen=True)
class Case:
    """One image, its query and what the reference answered.

    Attributes:
        name: Of the evaluation image.
        words: Of the query; empty where they are not known.
        image: [H, W, 3] uint8, RGB; of the model's size but for a case `of_another_size`.
        query: [Q] float32; empty for a model without a query.
        scores: [N] float32; empty for a model without scores.
        counts: [N] int32; empty for a model without counts.
        ranking: [K] int32; likewise.
    """

    name: str
    words: tuple[str, ...]
    image: Array
    query: Array
    scores: Array
    counts: Array
    ranking: Array

    def inputs(self, spec: ModelSpec) -> dict[str, Array]:
        """The case as the model's inputs, a batch of one."""
        made: dict[str, Array] = {}
        for i in spec.inputs:
            if i.kind == "image":
                scaled = i.low + (i.high - i.low) * (self.image.astype(np.float32) / np.float32(255))
                made[i.name] = scaled.transpose(2, 0, 1)[None].astype(np.float32)
            else:
                made[i.name] = self.query[None]
        return made


@dataclass(frozen=True)
class Words:
    """The vocabulary of a query encoder.

    Attributes:
        words: Lower-case words.
        table: [words, Q] float32, one row a word; a query is the mean of its words' rows.
    """

    words: tuple[str, ...]
    table: Array

    def of(self, query: Array) -> tuple[str, ...]:
        """The words whose rows' mean is a query [Q], in the vocabulary's order; empty where there are none.

        Matching pursuit (Mallat and Zhang, 1993) with the coefficients that a mean of so many rows must have.
        """
        for count in range(1, MOST_WORDS + 1):
            left, found = count * query.astype(np.float64), []
            for _ in range(count):
                found.append(int(np.argmax(self.table @ left)))
                left = left - self.table[found[-1]]
            if np.abs(left).max() < ROUNDING * count:
                return tuple(self.words[row] for row in sorted(found))
        return ()


def read_words(folder: Path) -> Words | None:
    """The vocabulary of a model folder, or None where it has none.

    Raises:
        ExportError: Its files do not fit each other.
    """
    listed, table = folder / "vocabulary.json", folder / "embeddings.bin"
    if not listed.is_file() or not table.is_file():
        return None
    try:
        record = json.loads(listed.read_text(encoding="utf-8"))
        words = tuple(str(word) for word in record["words"])
        return Words(words, np.fromfile(table, "<f4").reshape(len(words), int(record["dim"])))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ExportError(f"'{listed}' and '{table}' do not fit each other ({error})") from error


def choose_golden(
    spec: ModelSpec, recorded: Path, words: Words | None, answer: Answer, dynamic: Collection[str] = ()
) -> tuple[Case, ...]:
    """A case of each kind; none where no image is made of bytes.

    First the evaluation image on which the weakest of `FAULTS` shows most. Then, as far as they are others and there
    are such: the one whose highest score is lowest, and the first one with another width.
    The reference has no answer to the last: it is the proved fp32 artifact's.

    Args:
        spec: The model.
        recorded: The reference folder.
        words: What the query encoder knows.
        answer: Runs the proved fp32 artifact.
        dynamic: The axes whose sizes every artifact of these golden vectors leaves open.

    Raises:
        ExportError: The model has no scores.
    """
    _role(spec, "scores")
    found = list(cases(spec, recorded, words))
    if not found:
        return ()
    telling = max(found, key=lambda case: _weakest(case, spec, answer))
    named = [case for case in found if case.words] or found
    unanswered = min(named, key=lambda case: float(case.scores.max()))
    chosen = {case.name: case for case in (telling, unanswered)}
    other = _of_another_width(telling, spec, answer, dynamic)
    return (*chosen.values(), *((other,) if other is not None else ()))


def _of_another_width(case: Case, spec: ModelSpec, answer: Answer, dynamic: Collection[str]) -> Case | None:
    """A case's image, cropped to about half its width, or repeated where so little is not allowed."""
    image = next(i for i in spec.inputs if i.kind == "image")
    name = image.shape[3]
    if not isinstance(name, str) or name not in dynamic:
        return None
    axis, step = spec.axes[name], spec.axes[name].multiple_of
    half = max(axis.default // 2 // step * step, -(-axis.minimum // step) * step)
    width = half if half < axis.default else axis.default + step
    if width > axis.maximum:
        return None
    columns = np.arange(width) % axis.default
    cut = replace(case, name=f"{case.name}, {width} pixels wide", image=np.ascontiguousarray(case.image[:, columns]))
    return _answered(cut, spec, answer)


def _answered(case: Case, spec: ModelSpec, answer: Answer) -> Case:
    answers = answer(case.inputs(spec))
    scores = answers[_role(spec, "scores")][0].astype(np.float32)
    counts, ranking = (_optional(spec, role, answers, 0) for role in ("counts", "ranking"))
    return replace(case, scores=scores, counts=counts, ranking=ranking)


def of_another_size(case: Case, spec: ModelSpec, answer: Answer) -> Case:
    """A case's image with mirrored borders below and on the right, for libraries that resize a picture themselves.

    The reference has no answer to it: it is that of `answer` to the image in the model's size, in bytes, by the rule of
    the input and the filter that all libraries share (tests/golden/README.md).
    """
    height, width, _ = case.image.shape
    fit = next(i.fit for i in spec.inputs if i.kind == "image")
    large = np.pad(case.image, ((0, max(height // 3, 1)), (0, max(width // 5, 1)), (0, 0)), "symmetric")
    small = in_size(large, height, width, fit)
    name = f"{case.name}, {large.shape[1]} x {large.shape[0]} pixels"
    answered = _answered(replace(case, name=name, image=small), spec, answer)
    return replace(answered, image=large)


def largest(cases: tuple[Case, ...], spec: ModelSpec, answer: Answer) -> float:
    """Largest absolute difference of a score from the reference, over the cases."""
    scores = _role(spec, "scores")
    return max(float(np.abs(answer(case.inputs(spec))[scores][0] - case.scores).max()) for case in cases)


def undetected_faults(cases: tuple[Case, ...], spec: ModelSpec, answer: Answer, limit: float) -> tuple[str, ...]:
    """The faults of preprocessing that no case shows beyond a limit."""
    return tuple(name for name in FAULTS if max(_effect(name, case, spec, answer) for case in cases) <= limit)


def write_golden(folder: Path, cases: tuple[Case, ...]) -> str:
    """Write golden.json and golden.bin; returns the path of the former."""
    binary = bytearray()

    def part(array: Array) -> dict[str, object]:
        where = {"offset": len(binary), "shape": list(array.shape)}
        binary.extend(np.ascontiguousarray(array).tobytes())
        binary.extend(b"\0" * (-len(binary) % 4))
        return where

    rows = [
        {
            "name": c.name,
            "words": list(c.words),
            "image": part(c.image),
            "query": part(c.query.astype("<f4")),
            "expected": {
                "relevance": part(c.scores.astype("<f4")),
                "budgets": part(c.counts.astype("<i4")),
                "indices": part(c.ranking.astype("<i4")),
            },
        }
        for c in cases
    ]
    (folder / BINARY).write_bytes(bytes(binary))
    (folder / JSON).write_text(dump_json({"format": FORMAT, "binary": BINARY, "cases": rows}))
    return JSON


def cases(spec: ModelSpec, recorded: Path, words: Words | None, most: int = CANDIDATES) -> Iterator[Case]:
    """The first evaluation images of default size that are made of bytes, with such answers as there are."""
    asked = next((b for b in read_reference(recorded).batches if b.name == EVALUATION), None)
    image = next((i for i in spec.inputs if i.kind == "image"), None)
    query = next((i for i in spec.inputs if i.kind == "query"), None)
    if asked is None or image is None:
        return
    size = spec.shape(image.name)[1:]
    for row, name in enumerate(asked.names[:most]):
        array = asked.inputs[image.name][row]
        pixels = pixels_of(array, image.low, image.high, EXACT) if array.shape == size else None
        if pixels is None:
            continue
        question = asked.inputs[query.name][row] if query else np.empty(0, np.float32)
        yield Case(
            name=name,
            words=words.of(question) if words and query else (),
            image=pixels,
            query=question,
            scores=_optional(spec, "scores", asked.outputs, row, np.float32),
            counts=_optional(spec, "counts", asked.outputs, row),
            ranking=_optional(spec, "ranking", asked.outputs, row),
        )


def _optional(
    spec: ModelSpec, role: str, outputs: Mapping[str, Array], row: int, dtype: type[np.generic] = np.int32
) -> Array:
    name = next((o.name for o in spec.outputs if o.role == role), None)
    return np.empty(0, dtype) if name is None else outputs[name][row].astype(dtype)


def _role(spec: ModelSpec, role: str) -> str:
    name = next((o.name for o in spec.outputs if o.role == role), None)
    if name is None:
        raise ExportError(f"model '{spec.name}' has no output with the role '{role}': golden vectors need one")
    return name


def _weakest(case: Case, spec: ModelSpec, answer: Answer) -> float:
    return min(_effect(fault, case, spec, answer) for fault in FAULTS)


def _effect(fault: str, case: Case, spec: ModelSpec, answer: Answer) -> float:
    """How far the scores move under a fault of preprocessing."""
    inputs = case.inputs(spec)
    image = next(i for i in spec.inputs if i.kind == "image")
    wrong = np.ascontiguousarray(FAULTS[fault](inputs[image.name], image)).astype(np.float32)
    scores = answer({**inputs, image.name: wrong})[_role(spec, "scores")][0]
    return float(np.abs(scores - case.scores).max()) if scores.shape == case.scores.shape else 1.0
