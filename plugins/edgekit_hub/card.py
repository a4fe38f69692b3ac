"""The model card of the folder `hub`: README.md with YAML front matter, as the Hugging Face hub shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import edgekit
from edgekit.artifact.result import CANDIDATE, Result
from edgekit.artifact.run_record import WholeRecord
from edgekit.model.parts import CompositeModel
from edgekit.report import formats
from edgekit.report.page import environment
from edgekit.report.recommendation import deciding_text, decisive_share
from edgekit.report.text import escape_markdown
from edgekit_hub.selftest import DTYPES
from edgekit_hub.sentences import EMBEDDING

CARD = "README.md"
TEMPLATE = Path(__file__).with_name("card.md.jinja")
MARK = "<!-- model card of edgekit -->"
"""Tells a card of edgekit from one that somebody else wrote."""
LICENCE = ("license", "license_name", "license_link")
"""Fields of a card that state the licence."""
TAGS = ("edgekit", "onnx", "transformers.js", "optimum")
OPTIMUM = {
    "feature-extraction": "FeatureExtraction",
    "text-classification": "SequenceClassification",
    "token-classification": "TokenClassification",
    "question-answering": "QuestionAnswering",
    "fill-mask": "MaskedLM",
    "image-classification": "ImageClassification",
    "text-generation": "CausalLM",
    "text2text-generation": "Seq2SeqLM",
    "automatic-speech-recognition": "SpeechSeq2Seq",
}
"""Ends of the names of optimum's classes, by the hub's name of a task."""


@dataclass(frozen=True)
class Variant:
    """An ONNX file of the folder.

    Attributes:
        path: The file.
        part: The part that it holds; of two parts in one file, its name.
        target: The target that made it.
        precision: Its precision.
        result: The result of its artifact; None if it was judged in the whole model alone.
    """

    path: Path
    part: str
    target: str
    precision: str
    result: Result | None = None


def is_own_card(text: str) -> bool:
    """Return whether edgekit wrote a card."""
    return MARK in text


def source_licence(folder: Path) -> dict[str, str]:
    """Return the fields of the licence in the card of a model's folder; empty if it states none."""
    from huggingface_hub.repocard import metadata_load

    try:
        front = metadata_load(folder / CARD) or {}
    # The card is somebody else's: its front matter can be any YAML, or none.
    except Exception:
        return {}
    return {name: " ".join(str(front[name]).split()) for name in LICENCE if front.get(name)}


def write_card(
    folder: Path, model: CompositeModel, variants: Sequence[Variant], results: Mapping[str, WholeRecord]
) -> None:
    """Write the card.

    Args:
        folder: The folder for transformers.js, with its files.
        model: The model, with the facts of its `card`.
        variants: Its verified ONNX files.
        results: Results of the whole model, by target.
    """
    task = model.card.get("task", "").removesuffix("-with-past")
    front: dict[str, object] = {"library_name": "transformers.js"}
    front |= {"pipeline_tag": task} if task else {}
    front |= {name: model.card[name] for name in ("base_model", *LICENCE) if name in model.card}
    front["tags"] = list(TAGS)
    outputs = {o.name for part in model.parts.values() for o in getattr(part, "outputs", None) or ()}
    first = variants[0] if variants else None
    # With other names than its own, optimum takes files of several parts by arguments of each class.
    has_plain_names = len(model.parts) == 1 or (first is not None and first.precision == "fp32")
    targets = dict.fromkeys(v.target for v in variants)
    hosts = {
        host.get("processor", "an unknown processor") + (f", {threads} threads" if threads else "")
        for host in (v.result.host for v in variants if v.result is not None)
        for threads in (host.get("threads", ""),)
    }
    context = {
        "front": front,
        "mark": MARK,
        "model": model,
        "version": edgekit.__version__,
        "task": task,
        "source": model.card.get("source", ""),
        "licence": " ".join(model.card[name] for name in LICENCE if name in model.card),
        "rows": [_row(folder, variant) for variant in variants],
        "hosts": sorted(hosts),
        "evidence": {
            **{f"`{v.path.name}`": _evidence(v.result) for v in variants if v.result is not None},
            **{f"the whole model, with `{target}`": _evidence(results[target].result) for target in targets},
        },
        "first": first,
        "dtype": DTYPES.get(first.precision, "") if first is not None else "",
        "optimum": OPTIMUM.get(task, "") if has_plain_names else "",
        "embeds": EMBEDDING in outputs,
        "escape": escape_markdown,
    }
    text = environment().overlay(autoescape=False).from_string(TEMPLATE.read_text()).render(context)
    (folder / CARD).write_text(text + "\n", encoding="utf-8")


def _row(folder: Path, variant: Variant) -> dict[str, str]:
    """Return the cells of a file's row in the table."""
    cells = {
        "file": variant.path.relative_to(folder).as_posix(),
        "precision": variant.precision,
        "size": formats.size(variant.path.stat().st_size),
    }
    if variant.result is None:
        return {**cells, "verdict": "verified in the whole model", "nearest": formats.NONE, "speed": formats.NONE}
    place = max(variant.result.places, key=decisive_share)
    timings = [(p.place, p.timings[CANDIDATE]) for p in variant.result.places if CANDIDATE in p.timings]
    return {
        **cells,
        "verdict": f"{place.status} ({place.qualifier})" if place.qualifier else place.status,
        "nearest": deciding_text(place) or formats.NONE,
        "speed": ", ".join(f"{formats.milliseconds(t.p50)} ({name})" for name, t in timings) or formats.NONE,
    }


def _evidence(result: Result | None) -> list[str]:
    """Return what was compared in each place, in words."""
    places = result.places if result is not None else ()
    return [str(place.evidence).removeprefix("evidence: ") for place in places if place.evidence]
