"""The sample pictures of a bundle's page: rows of the evaluation set that the model answers rightly, with queries.

`samples.json` is::

    {"trained_on": "drawn shapes", "samples": [
        {"file": "samples/012-0.webp", "title": "purple circle", "query": "purple circle",
         "queries": ["purple circle", "purple"], "vector": "base64"},
        {"file": "samples/009-7.webp", "title": "green bar", "query": "green bar", "queries": ["green", "bar"],
         "absent": true}]}

`queries` are those that the picture answers. `vector` is the query's vector, only in the first sample, so that its
answer does not wait for the words' vectors. The query of an `absent` sample is not in the picture: a right miss.
`credit` names the authors and licences of the photographs from which a picture was adapted, if the model's
`credits.json` names any.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, replace
from itertools import combinations, islice
from pathlib import Path

import numpy as np

from edgekit.model.evaluation_set import evaluation_of
from edgekit.model.spec import Array, ModelSpec
from edgekit.reference import golden
from edgekit.reference.vocabulary import Vocabulary, read_vocabulary
from edgekit.storage.files import dump_json

MOST = 8
# Of the samples. One miss shows how a miss looks.
ABSENT = 1
# Rows of the evaluation set.
TRIED = 2 * MOST
# Per picture.
QUERIES = 4
# In words: "red circle" says more to a visitor than "large".
TELLING = 2
# Of WebP: 20 KB instead of 60.
QUALITY = 90
PRESENCE = "presence.json"
# Lines of credit by the row's name, among the model's files.
CREDITS = "credits.json"


@dataclass(frozen=True)
class Sample:
    """One picture.

    Attributes:
        case: The row of the evaluation set.
        query: In words. Empty for a model without queries.
        queries: Queries that the picture answers, with that of the row first.
        absent: Whether the picture rightly has no answer to the query.
    """

    case: golden.Case
    query: str = ""
    queries: tuple[str, ...] = ()
    absent: bool = False


def write(spec: ModelSpec, model: Path, reference: Path, out: Path, answer: golden.Answer) -> None:
    """Write samples.json and the pictures into a bundle.

    Args:
        spec: The model.
        model: Its folder.
        reference: The reference folder.
        out: The bundle.
        answer: Function that runs the bundle's fp32 model.
    """
    (out / "samples").mkdir()
    rows = [_row(sample, number, spec, out) for number, sample in enumerate(choose(spec, model, reference, answer))]
    file = model / CREDITS
    lines = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    for row in rows:
        name = str(row["file"]).removeprefix("samples/").rpartition("-")[0]
        row |= {"credit": str(lines[name])} if name in lines else {}
    metadata = {"trained_on": spec.trained_on} if spec.trained_on else {}
    (out / "samples.json").write_text(dump_json({"samples": rows, **metadata}))


def choose(spec: ModelSpec, model: Path, reference: Path, answer: golden.Answer) -> list[Sample]:
    """Return the samples, the most telling queries first, and last one that rightly has no answer."""
    cases = golden.pictures(spec, reference, TRIED)
    vocabulary = read_vocabulary(model)
    if vocabulary is None or not any(i.kind == "query" for i in spec.inputs):
        return [Sample(case) for case, _ in zip(cases, range(MOST), strict=False)]
    file = model / PRESENCE
    # The lowest of the highest scores that answer a query, or None without one.
    threshold = float(json.loads(file.read_text(encoding="utf-8"))["threshold"]) if file.is_file() else None
    asker = _Asker(spec, vocabulary, threshold, answer)
    # The cases in which the model agrees with the known truth.
    agreed = []
    nothing = _nothing(spec)
    for case in cases:
        words, absent = asker.words(case), nothing.get(case.name, False)
        if words and asker.present(case, words) != absent:
            agreed.append(Sample(case, " ".join(words), absent=absent))
    answered = sorted((s for s in agreed if not s.absent), key=lambda s: len(s.query.split()) < TELLING)
    missed = [s for s in agreed if s.absent][:ABSENT]
    return [asker.with_queries(sample) for sample in (*answered[: MOST - len(missed)], *missed)]


@dataclass(frozen=True)
class _Asker:
    """A model and its words. Without a threshold every query counts as answered."""

    spec: ModelSpec
    vocabulary: Vocabulary
    threshold: float | None
    answer: golden.Answer

    @property
    def input(self) -> str:
        return next(i.name for i in self.spec.inputs if i.kind == "query")

    def words(self, case: golden.Case) -> tuple[str, ...]:
        return self.vocabulary.of(case.inputs[self.input][0])

    def present(self, case: golden.Case, words: tuple[str, ...]) -> bool:
        """Return whether the model finds something in the picture that answers these words."""
        if self.threshold is None:
            return True
        rows = [self.vocabulary.words.index(word) for word in words]
        vector = self.vocabulary.table[rows].mean(0, keepdims=True).astype(np.float32)
        outputs = self.answer(replace(case, inputs={**case.inputs, self.input: vector}).feed(self.spec))
        scores = next(o.name for o in self.spec.outputs if o.role == "scores")
        return float(outputs[scores].max()) >= self.threshold

    def with_queries(self, sample: Sample) -> Sample:
        """Return a sample with the queries that its picture answers: the row's query, and wider parts of it."""
        words = tuple(sample.query.split())
        parts = [words, *((word,) for word in words), *combinations(words, 2)]
        queries = [part for part in dict.fromkeys(parts) if not (sample.absent and part == words)]
        answered = (" ".join(part) for part in queries if self.present(sample.case, part))
        return replace(sample, queries=tuple(islice(answered, QUERIES)))


def _nothing(spec: ModelSpec) -> dict[str, bool]:
    """Return whether each row of the evaluation set lacks an answer, by name, as far as its truth says."""
    evaluation = evaluation_of(spec)
    if evaluation is None or evaluation.truth is None:
        return {}
    rows: Array = evaluation.truth.reshape(len(evaluation.names), -1)
    return {name: bool((row == 0).all()) for name, row in zip(evaluation.names, rows, strict=True)}


def _row(sample: Sample, number: int, spec: ModelSpec, out: Path) -> dict[str, object]:
    """Write a sample's picture and return its row."""
    from PIL import Image

    case = sample.case
    # The name of a row may have folders: red/1.png.
    name = re.sub(r"[^\w.-]", "-", case.name.split()[0])
    file = f"samples/{name}-{number}.webp"
    Image.fromarray(np.asarray(case.image)).save(out / file, quality=QUALITY, method=6)
    row: dict[str, object] = {"file": file, "query": sample.query, "title": sample.query or case.name}
    if sample.query:
        row["queries"] = list(sample.queries)
    if sample.absent:
        row["absent"] = True
    if sample.query and number == 0:
        query = next(i.name for i in spec.inputs if i.kind == "query")
        row["vector"] = base64.b64encode(case.inputs[query].astype("<f4").tobytes()).decode()
    return row
