"""Report page: one HTML file without network, fonts, or scripts other than the one that sorts.

Jinja escapes all external text, and the page's content security policy allows only its own style, its sorting script
and embedded pictures.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgekit import registry
from edgekit.artifact.fact import EVALUATION, Fact
from edgekit.artifact.metric import metric_info, plain, share, task_meaning
from edgekit.artifact.result import Measure
from edgekit.errors import UsageError
from edgekit.judge.budget import compare_budgets, parse_budgets
from edgekit.model.spec import Array
from edgekit.reference.info import ReferenceInfo
from edgekit.report import formats, plots
from edgekit.report.recommendation import decisive, join_reasons, recommend, share_of_limit
from edgekit.report.study import STATUSES, BuildReport, ReportedArtifact, ReportRow
from edgekit.storage.verified_io import visible

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup
    from PIL.Image import Image


SORTER = Path(__file__).with_name("sort.js")
# Letters of a reason in the table; the full text is one click away.
LONGEST_REASON = 64
# Most failures of one row in the page; report.json has all.
MOST_FAILURES = 40
# Other artifacts of which a recommendation says at once why it is not them.
FEW_OTHERS = 3
# What the mark of a slower artifact means.
SLOWER = (
    "no fault by itself, but on this host it takes longer than the artifact that it was made from: it pays only where "
    "its size counts, or on another processor"
)


class Limit(NamedTuple):
    """A limit in use: the table's, the noise's, and the one that applied."""

    output: str
    metric: str
    table: str
    noise: str
    used: str
    widened: bool


def render(study: BuildReport) -> str:
    """Return the page."""
    return environment().get_template("page.html").render(context(study))


@functools.cache
def environment() -> Environment:
    """Return Jinja with the globals of this room's templates, which it compiles once; HTML and XML are escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    jinja = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=select_autoescape(("html", "xml")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    jinja.filters["prose"] = prose
    jinja.globals |= {
        "n": formats,
        "statuses": STATUSES,
        "strip": plots.STRIP,
        "displayed": measures_by_batch,
        "brief": lambda reason: formats.brief(str(reason), LONGEST_REASON),
        "decisive": decisive,
        "share_of_limit": share_of_limit,
        "join_reasons": join_reasons,
        "wrong_inputs": wrong_inputs,
        "SLOWER": SLOWER,
        "task_meaning": task_meaning,
        "meaning": lambda metric: metric_info(metric).meaning,
        "heat": HEAT,
        "lower": LOWER,
        "higher": HIGHER,
        "veil": veil,
        "proof": proof,
        "most": MOST_FAILURES,
        "few": FEW_OTHERS,
    }
    return jinja


def context(study: BuildReport) -> dict[str, Any]:
    """Return the values for the page's template."""
    reference = study.reference_outputs()
    cards = picture_cards(study, reference)
    advice = recommend(study)
    return {
        "advice": advice,
        "terms": terms(study.current),
        "tradeoffs": plots.plot_tradeoffs(study, advice),
        "timings": {row: plots.plot_latency(row) for row in study.rows},
        "reference_speeds": plots.plot_reference(study.reference),
        # Jinja strips the last newline of an included file.
        "sorter_hash": script_hash(SORTER.read_text().removesuffix("\n")),
        "study": study,
        "reference": study.reference,
        "counts": [(status, study.count(status)) for status in STATUSES if study.count(status)],
        "lead": lead(study),
        "accuracy": plots.plot_accuracy(study, reference),
        "cards": cards,
        "anchors": {card.name: card.anchor for card in cards},
        "homes": {row: f"a-{number}" for number, each in enumerate(study.artifacts, 1) for row in each.rows},
        "limits": limits(study.rows),
        "hosts": hosts(study.artifacts),
        "budgets": budgets(study),
        "has_maps": any(o.role == "scores" for each in study.artifacts if each.manifest for o in each.manifest.outputs),
    }


def terms(rows: Iterable[ReportRow]) -> list[tuple[str, str]]:
    """Return each metric that decided a verdict, with its meaning, once."""
    deciding = (decisive(row.verdict) for row in rows)
    names = sorted({measure.metric for measure in deciding if measure is not None})
    return [(name, info.meaning) for name in names if (info := metric_info(name)).meaning != name]


def budgets(study: BuildReport) -> list[tuple[str, Fact]]:
    """Return each row and each of the run's budgets that applies to it, as a fact with what was asked and found."""
    targets = registry.with_unlisted()
    facts = []
    for each in (each for each in study.artifacts if not each.earlier and each.target in targets):
        names = {each.target, *targets[each.target].groups, *(row.precision for row in each.rows)}
        with contextlib.suppress(UsageError):
            asked = parse_budgets(
                study.run.budget, {*targets, *(g for t in targets.values() for g in t.groups), *names}
            )
            facts += [
                (f"{each.target} · {place}", fact)
                for result in each.results[:1]
                for place, fact in compare_budgets(asked, names, result)
            ]
    return facts


def wrong_inputs(reference: ReferenceInfo, row: ReportRow) -> str:
    """Return whether one input that turns from right to wrong rejects, if the task metric counts each as 1 or 0."""
    values, drop = reference.evaluation.values, row.drop
    if not values or set(values) - {0.0, 1.0} or drop is None or drop.limit is None:
        return ""
    allowed = int(drop.limit * len(values))
    verdict = f"at most {allowed} may turn from right to wrong" if allowed else "one that turns wrong rejects"
    return f"{drop.metric}: one of {len(values)} inputs is {plain(1 / len(values))} of the mean; {verdict}."


def lead(study: BuildReport) -> str:
    """Return the counts of verdicts in a sentence."""
    rows = len(study.rows)
    summary = f"{study.count('verified')} of {rows} {'verdict is' if rows == 1 else 'verdicts are'} verified"
    others = [(status, study.count(status)) for status in STATUSES if status != "verified"]
    rest = [f"{count} {'is' if count == 1 else 'are'} {status}" for status, count in others if count]
    return f"{summary}; {', '.join(rest)}." if rest else f"{summary}."


def limits(rows: Iterable[ReportRow]) -> list[tuple[Limit, list[str], tuple[str, ...]]]:
    """Return every limit in use, once, with its inputs and rows."""
    # Dictionaries with None as values serve as ordered sets.
    users: dict[tuple[Limit, str], dict[str, None]] = {}
    for row in rows:
        for m in row.verdict.measures:
            if m.limit is not None:
                widened = m.table is not None and m.limit != m.table
                limit = Limit(m.output, m.metric, formats.table_limit(m), formats.noise(m), formats.limit(m), widened)
                users.setdefault((limit, _kind(m.batch)), {})[row.label] = None
    batches: dict[tuple[Limit, tuple[str, ...]], list[str]] = {}
    for (limit, batch), labels in users.items():
        batches.setdefault((limit, tuple(labels)), []).append(batch)
    used = [(limit, kinds, labels) for (limit, labels), kinds in batches.items()]
    return sorted(used, key=lambda entry: (entry[0].output == "", entry[0].output, entry[0].metric, entry[0].used))


def _kind(batch: str) -> str:
    return batch if batch in (EVALUATION, "stress") else "grid of shapes"


def measures_by_batch(row: ReportRow) -> dict[str, list[Measure]]:
    """Return a row's measures for its table; for the grid only the worst of each metric."""
    groups: dict[str, list[Measure]] = {}
    for measure in row.verdict.measures:
        groups.setdefault(_kind(measure.batch), []).append(measure)
    return {kind: _nearest(of) if kind == "grid of shapes" else of for kind, of in groups.items()}


def _nearest(measures: Sequence[Measure]) -> list[Measure]:
    def pressure(measure: Measure) -> float:
        return math.inf if measure.value is None else metric_info(measure.metric).sign * measure.value

    worst: dict[tuple[str, str], Measure] = {}
    for measure in measures:
        key = measure.output, measure.metric
        worst[key] = max(worst.get(key, measure), measure, key=pressure)
    return list(worst.values())


def proof(shapes: Sequence[Mapping[str, int]]) -> str:
    """Return the tested shapes in a line: every tested size of each axis."""
    axes: dict[str, set[int]] = {}
    for shape in shapes:
        for axis, size in shape.items():
            axes.setdefault(axis, set()).add(size)
    return " · ".join(f"{axis} {', '.join(map(str, sorted(sizes)))}" for axis, sizes in axes.items())


def hosts(artifacts: Sequence[ReportedArtifact]) -> list[tuple[dict[str, str], list[str]]]:
    """Return each host once, with the artifacts that it judged."""
    hosts_judged: dict[tuple[tuple[str, str], ...], dict[str, None]] = {}
    for result in (result for each in artifacts for result in each.results if result.host):
        label = f"{result.target} ({', '.join(place.place for place in result.places)})"
        hosts_judged.setdefault(tuple(sorted(result.host.items())), {})[label] = None
    return [(dict(host), list(labels)) for host, labels in hosts_judged.items()]


def script_hash(text: str) -> str:
    """Return the hash by which the content security policy allows this script and no other."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def prose(text: object) -> Markup:
    """Return a sentence with its `commands` as code, and everything escaped."""
    from markupsafe import Markup, escape

    parts = visible(str(text), "\n").split("`")
    if len(parts) % 2 == 0:
        return escape("`".join(parts))
    return Markup("").join(Markup("<code>{}</code>").format(p) if i % 2 else escape(p) for i, p in enumerate(parts))


def _visible(value: object) -> object:
    """Return a template value with unprintable characters escaped; markup is already escaped."""
    return visible(value, "\n") if isinstance(value, str) and not hasattr(value, "__html__") else value


# Number of worst images that are drawn.
MOST_WORST = 4
# Number of typical images that are drawn.
TYPICAL = 2
# Maps per image; the tables have the measures of the others.
MOST_ROWS = 10
# Pixels of an embedded picture.
LARGEST_SIDE = 336
JPEG_QUALITY = 86

# Dark violet to pale yellow, even in lightness (after matplotlib's inferno), and blue - nothing - orange.
HEAT = ((10, 7, 34), (64, 10, 103), (133, 32, 107), (196, 60, 78), (240, 112, 32), (251, 182, 26), (252, 255, 164))
LOWER, HIGHER = (37, 99, 235), (234, 88, 12)
# Magenta: values that are not finite.
LOST = (255, 0, 255, 255)


@dataclass(frozen=True)
class Tile:
    """One artifact's output for one image."""

    row: ReportRow
    overlay: str
    difference: str
    peak: str
    lost: bool
    box: tuple[int, int, int, int] | None
    patch: int
    worst: bool


@dataclass(frozen=True)
class Card:
    """One image with the maps of the reference and of every artifact."""

    anchor: str
    name: str
    caption: str
    why: tuple[str, ...]
    output: str
    picture: str
    width: int
    height: int
    overlay: str
    span: tuple[str, str]
    tiles: tuple[Tile, ...]
    metric: str


def picture_cards(study: BuildReport, arrays: Mapping[str, Array]) -> tuple[Card, ...]:
    """Choose the images and draw them; return nothing without images, maps or a grid of patches."""
    tensor = study.reference.image_input()
    errors = {row: values for row in study.rows if (values := plots.errors(row.scores, arrays)) is not None}
    if not tensor or not errors:
        return ()
    cards = (_card(index, why, list(errors), arrays, study.reference, tensor) for index, why in _select_images(errors))
    return tuple(card for card in cards if card)


def _select_images(errors: Mapping[ReportRow, Array]) -> list[tuple[int, tuple[str, ...]]]:
    """Return the indices of images and the reasons for each."""
    table = np.nan_to_num(np.stack(list(errors.values())), nan=np.inf)
    reasons: dict[int, list[str]] = {}
    for row, values in sorted(zip(errors, table, strict=True), key=lambda pair: pair[0].status != "rejected"):
        reasons.setdefault(int(values.argmax()), []).append(f"worst image of {row.label}")
    worst = list(reasons.items())[:MOST_WORST]
    # Ranks, so that rows with large errors do not decide alone.
    ranks = table.argsort(1).argsort(1).mean(0)
    middle = np.abs(ranks - (table.shape[1] - 1) / 2).argsort(kind="stable").tolist()
    typical = [index for index in middle if index not in dict(worst)][:TYPICAL]
    return [(index, tuple(why)) for index, why in worst] + [(index, ("a typical image",)) for index in typical]


def _card(
    index: int,
    why: tuple[str, ...],
    rows: Sequence[ReportRow],
    arrays: Mapping[str, Array],
    reference: ReferenceInfo,
    tensor: str,
) -> Card | None:
    picture = reference.picture(tensor, index)
    output = next(name for row in rows for name in row.scores if name in arrays)
    if picture is None:
        return None
    height, width = picture.shape[:2]
    grid = _grid(height, width, arrays[output].shape[1])
    if grid is None:
        return None
    right = np.asarray(arrays[output][index], np.float64).reshape(grid)
    low, high = float(np.nanmin(right)), float(np.nanmax(right))
    visible_rows = [row for row in rows if output in row.scores and row.scores[output].shape == arrays[output].shape]
    visible_rows.sort(key=lambda row: row.status != "rejected")
    maps = [(row, np.asarray(row.scores[output][index], np.float64).reshape(grid)) for row in visible_rows[:MOST_ROWS]]
    values = reference.evaluation.values
    return Card(
        anchor=f"image-{index}",
        name=reference.name(index),
        caption=reference.caption(index),
        why=why,
        output=output,
        picture=_jpeg(picture),
        width=width,
        height=height,
        overlay=_png(_heat(right, low, high)),
        span=(plain(low), plain(high)),
        tiles=tuple(_tile(row, mine, right, (low, high), (width, height), why) for row, mine in maps),
        metric=f"{reference.evaluation.metric} {share(values[index])}" if index < len(values) else "",
    )


def _grid(height: int, width: int, patches: int) -> tuple[int, int] | None:
    """Return rows and columns of square patches if the picture divides into that many, else None."""
    side = round((height * width / patches) ** 0.5)
    if side < 1 or height % side or width % side or (height // side) * (width // side) != patches:
        return None
    return height // side, width // side


def _tile(
    row: ReportRow, mine: Array, right: Array, scale: tuple[float, float], size: tuple[int, int], why: tuple[str, ...]
) -> Tile:
    off = mine - right
    lost = ~np.isfinite(off)
    patch = int(lost.argmax()) if lost.any() else int(np.abs(off).argmax())
    peak = 0.0 if lost.all() else float(np.abs(off[~lost]).max())
    width, height = size[0] // right.shape[1], size[1] // right.shape[0]
    box = (patch % right.shape[1] * width, patch // right.shape[1] * height, width, height)
    # Blue where the artifact is lower, orange where it is higher, clear where both agree. RGBA uint8.
    share = np.clip(np.where(np.isfinite(off), off, 0.0) / (peak or 1.0), -1, 1)
    pixels = np.where((share < 0)[..., None], np.array([*LOWER, 0.0]), np.array([*HIGHER, 0.0]))
    pixels[..., 3] = 255 * np.abs(share)
    pixels[~np.isfinite(off)] = LOST
    signed = np.asarray((pixels + 0.5).astype(np.uint8))
    return Tile(
        row=row,
        overlay=_png(_heat(mine, *scale)),
        difference=_png(signed),
        peak=f"{int(lost.sum())} patches are not finite" if lost.any() else plain(peak),
        lost=bool(lost.any()),
        box=box if peak or lost.any() else None,
        patch=patch,
        worst=f"worst image of {row.label}" in why,
    )


def _heat(values: Array, low: float, high: float) -> Array:
    """Return the colours of a map; values that are not finite are magenta. RGBA uint8."""
    share = np.clip((np.where(np.isfinite(values), values, low) - low) / ((high - low) or 1.0), 0, 1)
    stops = np.linspace(0, 1, len(HEAT))
    channels = [np.interp(share, stops, [colour[i] for colour in HEAT]) for i in range(3)]
    pixels = np.stack([*channels, 255 * veil(share)], -1)
    pixels[~np.isfinite(values)] = LOST
    return np.asarray((pixels + 0.5).astype(np.uint8))


def veil(share: Any) -> Any:
    """Return the opacity of a map over its picture: low values let the picture show through."""
    return np.round(0.18 + 0.74 * share**0.6, 3)


def _png(pixels: Array) -> str:
    from PIL import Image

    return _address(Image.fromarray(pixels), "png")


def _jpeg(pixels: Array) -> str:
    from PIL import Image

    picture = Image.fromarray(pixels)
    picture.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
    return _address(picture, "jpeg", quality=JPEG_QUALITY)


def _address(picture: Image, form: str, **options: int) -> str:
    stream = io.BytesIO()
    picture.save(stream, form, optimize=True, **options)
    return f"data:image/{form};base64,{base64.b64encode(stream.getvalue()).decode()}"
