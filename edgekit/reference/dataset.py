"""Evaluation and calibration sets from a folder of the user's inputs.

A folder has one of these contents:

- a folder of pictures for each class, `<class>/<picture>`, as torchvision's ImageFolder reads them; the classes have
  the order of `Output.classes`, or else of their names;
- pictures (PNG, JPEG, WebP, BMP of any size) for the input that takes pictures, and for each other input a file
  `<input>.npy` with one row per picture. If a metric needs it, also `labels.csv` (file,label) or `labels.json` ({file:
  label}) with numbers of classes from 0, or names of `Output.classes`;
- files `<anything>.npz` with an array for each input, rows along the first axis, and `truth` if a metric needs it;
- files `<input>.npy` alone.

Duplicates count once: copies of one input would lower the share of wrong outputs.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import warnings
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tokenize import TokenError

import numpy as np

from edgekit import metrics
from edgekit.errors import DataError, reason, suggestion
from edgekit.judge.chance import FEW_ROWS
from edgekit.model.evaluation_set import (
    BATCH,
    COUNT,
    calibration_of,
    evaluation_of,
    metric_values,
    rows_of,
    runs_of,
    stack_runs,
)
from edgekit.model.image_input import pack_images, spec_in_planes
from edgekit.model.spec import Array, EvaluationSet, Input, ModelSpec
from edgekit.reference.pictures import in_size, pixels_of
from edgekit.reference.plausibility import answer_rows, chance_of, find_doubt

# Least calibration samples: ONNX Runtime's own examples use hundreds, and a search holds a third back.
LEAST = 64
# Least inputs to split: LEAST calibrate, and the rest suffice to detect a wrong artifact.
ENOUGH = LEAST + FEW_ROWS
PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
# Allowed formats, whatever the file's name: an EPS file would start Ghostscript.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP")
# Most bytes of an image file.
LARGEST = 256 << 20
# Most pixels of an image: twice those of most phones.
MOST_PIXELS = 24_000_000
# Most bytes of a set as model inputs.
MOST_BYTES = 4 << 30
LABELS = ("labels.csv", "labels.json")
# Bytes of a file of labels: some 300,000 lines.
MOST_LABELS = 16 << 20
TRUTH = "truth"
Own = Callable[[Input, int], Array]
"""Returns rows of an input without a file, from the model's own set."""


# Levels in which pictures are compared: bytes over 255 and bytes times 1/255 differ in their last bit.
LEVELS = 255 * 16


@dataclass(frozen=True)
class EvaluationSets:
    """A user's sets as the model takes them.

    Attributes:
        evaluation: Judges artifacts.
        calibration: Calibrates INT8.
        note: How a folder was split, in a sentence.
        classes: Names of the class folders, in the order of their numbers; empty if pictures lie in no such folders.
    """

    evaluation: EvaluationSet | None
    calibration: EvaluationSet | None
    note: str = ""
    classes: tuple[str, ...] = ()


def sets_of(spec: ModelSpec, data: Path | None, calibration: Path | None, splits: bool = True) -> EvaluationSets:
    """Return the sets from one folder or two; one folder is split by the hashes of its inputs if it suffices.

    Without `splits`, all of its inputs judge.

    Raises:
        DataError: If a folder is unreadable or too small, or both sets share an input.
    """
    calibration_set = None if calibration is None else distinct(spec, read_folder(spec, calibration))
    if calibration_set is not None:
        _require(calibration_set, LEAST, calibration, "are needed to calibrate INT8")
    if data is None:
        if calibration_set is not None and (evaluation := evaluation_of(spec)) is not None:
            refuse_shared(spec, evaluation, calibration_set)
        return EvaluationSets(None, calibration_set)
    dataset = distinct(spec, read_folder(spec, data))
    classes = class_names(spec, data)
    _require(dataset, FEW_ROWS, data, "are needed to tell whether 99 of 100 are right")
    if calibration_set is not None:
        refuse_shared(spec, dataset, calibration_set)
        return EvaluationSets(dataset, calibration_set, classes=classes)
    own = calibration_of(spec, COUNT)
    if own is None and splits:
        return replace(split(spec, dataset), classes=classes)
    # Other faults of the set are reported at its use.
    if own is not None and all(i.name in own.inputs for i in spec.inputs):
        refuse_shared(spec, dataset, own)
    return EvaluationSets(dataset, None, classes=classes)


def split(spec: ModelSpec, every: EvaluationSet) -> EvaluationSets:
    """Split inputs by their hashes: at least `LEAST` and at most `COUNT`, else half, calibrate; the others judge.

    An input's part depends on its hash alone.
    """
    count = len(every.names)
    if count < ENOUGH:
        return EvaluationSets(every, None)
    order = np.argsort(np.array(_digests(spec.inputs, every)))
    calibration_count = max(LEAST, min(COUNT, count // 2))
    note = (
        f"of {count} real inputs {calibration_count} calibrate INT8, {count - calibration_count} judge, split by hash"
    )
    part, rest = sorted(order[:calibration_count].tolist()), sorted(order[calibration_count:].tolist())
    return EvaluationSets(rows_of(every, rest), rows_of(every, part), note)


def distinct(spec: ModelSpec, every: EvaluationSet) -> EvaluationSet:
    """Return a set without duplicates; the first stays."""
    first: dict[str, int] = {}
    for row, digest in enumerate(_digests(spec.inputs, every)):
        first.setdefault(digest, row)
    return every if len(first) == len(every.names) else rows_of(every, list(first.values()))


def check_truth(spec: ModelSpec, evaluation: EvaluationSet) -> None:
    """Raise unless the metric distinguishes the truth of a row from that of another: else no drop shows.

    Labels that are off by one, belong to other files or are all equal fail this check.

    Raises:
        DataError: With the model's own value of this metric.
    """
    part = rows_of(evaluation, range(min(len(evaluation.names), COUNT)))
    outputs = answer_rows(spec, part)
    _require_classes(spec, part, outputs)
    own = metric_values(part, outputs)
    if own is None or part.truth is None:
        return
    values = chance_of(part, outputs)
    chance = float(values.mean()) if values is not None else 0.0
    if float(np.mean(own)) <= chance:
        doubt = find_doubt(spec, part, outputs) or f"'{evaluation.metric_name}' does not depend on the truth"
        end = "" if doubt.endswith("?") else "."
        raise DataError(
            f"{doubt}{end} A wrong artifact would lose nothing by this metric. Correct the set-up or the labels (the "
            "first class is 0), or leave --metric out"
        )


def _require_classes(spec: ModelSpec, evaluation: EvaluationSet, outputs: Mapping[str, Array]) -> None:
    """Raise if a label is not one of an output's classes."""
    metric, truth = evaluation.metric, evaluation.truth
    if truth is None or not isinstance(metric, metrics.ParsedMetric):
        return
    if not metric.words.startswith(f"{metrics.top_k.__name__}:"):
        return
    text, name = metric.words, metric.outputs[0]
    classes = outputs[name].shape[1] if outputs[name].ndim > 1 else 0
    if truth.dtype.kind not in "iu" or truth.shape != (len(truth),) or outputs[name].ndim != 2:
        raise DataError(
            f"'{text}' compares '{name}' {list(outputs[name].shape)} with labels. Give one integer per input, from 0"
        )
    class_texts = next((o.classes for o in spec.outputs if o.name == name), ())
    if class_texts and len(class_texts) != classes:
        raise DataError(
            f"'{name}' has {classes} classes, and {len(class_texts)} have a name ({', '.join(class_texts)}). Name "
            f"all in order: --outputs {name}:classes=FIRST,SECOND"
        )
    if (wrong := truth[(truth < 0) | (truth >= classes)]).size:
        raise DataError(f"the label {wrong[0]} is not one of the {classes} classes of '{name}'. The first class is 0")


def check_folder(folder: Path) -> None:
    """Raise for a bad calibration folder before minutes of other work.

    Raises:
        DataError: If it is missing, has no usable files, too few pictures, or a broken one.
    """
    paths = _files(folder, PICTURES) or [path for inner in _class_folders(folder) for path in _files(inner, PICTURES)]
    if not paths and not _files(folder, (".npy", ".npz")):
        raise DataError(f"the folder '{folder}' has no images. PNG, JPEG, WebP and BMP are read")
    if paths and len(paths) < LEAST:
        raise DataError(f"the folder '{folder}' has {len(paths)} calibration samples. At least {LEAST} are needed")
    for path in paths:
        _pixels(path, 3)


def read_folder(spec: ModelSpec, folder: Path, own: Own | None = None) -> EvaluationSet:
    """Return all inputs in a folder, in the order of its files' names.

    Args:
        spec: The model that takes it.
        folder: The folder.
        own: Supplies an input without a file.

    Raises:
        DataError: If it has no inputs of the model, or a file is broken or does not fit.
    """
    pictures, archives = _files(folder, PICTURES), _files(folder, (".npz",))
    image = next((i for i in spec.inputs if i.kind == "image"), None)
    if pictures and archives:
        raise DataError(f"the folder '{folder}' has pictures and .npz files. Put each kind into its own folder")
    if archives:
        return _check_finite(spec, _read_archives(spec, archives))
    if image is not None:
        if not pictures and (names := class_names(spec, folder)):
            pictures = [path for name in names for path in _files(folder / name, PICTURES)]
        if not pictures:
            raise DataError(f"the folder '{folder}' has {_nothing(spec, folder)}")
        return _check_finite(spec, _read_pictures(spec, folder, image, pictures, own))
    files = [i for i in spec.inputs if (folder / f"{i.name}.npy").is_file()]
    if not files:
        raise DataError(f"the folder '{folder}' has {_nothing(spec, folder)}")
    first = _rows(spec, folder, files[0], 0, own)
    count = len(first) // _size(spec, files[0])
    rest = {i.name: _rows(spec, folder, i, count, own) for i in spec.inputs if i is not files[0]}
    inputs = {i.name: first if i is files[0] else rest[i.name] for i in spec.inputs}
    return _check_finite(spec, EvaluationSet(inputs, tuple(f"{files[0].name}-{row}" for row in range(count))))


def class_names(spec: ModelSpec, folder: Path) -> tuple[str, ...]:
    """Return the classes of a folder with a folder of pictures for each, in the order of their numbers.

    The order is that of the classes that the model declares, else of the names, as in torchvision's ImageFolder.

    Raises:
        DataError: If the model declares classes and a folder is named like none of them.
    """
    if not any(i.kind == "image" for i in spec.inputs) or not folder.is_dir() or _files(folder, PICTURES):
        return ()
    names = [inner.name for inner in _class_folders(folder)]
    declared = _declared_classes(spec)
    if declared and (odd := next((name for name in names if name not in declared), "")):
        raise DataError(
            f"the folder '{folder / odd}' does not have the name of a class of '{spec.name}'. Classes: "
            f"{', '.join(declared)}"
        )
    return tuple(name for name in declared if name in names) if declared else tuple(names)


def _declared_classes(spec: ModelSpec) -> tuple[str, ...]:
    return next((o.classes for o in spec.outputs if o.classes), ())


def _class_folders(folder: Path) -> list[Path]:
    inner = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return sorted(path for path in inner if _files(path, PICTURES))


def _files(folder: Path, suffixes: Collection[str]) -> list[Path]:
    if not folder.is_dir():
        raise DataError(f"the folder '{folder}' does not exist")
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in suffixes)


def _nothing(spec: ModelSpec, folder: Path) -> str:
    """Return what a folder lacks, and its possible contents."""
    arrays = ", ".join(i.name for i in spec.inputs)
    inner = next((path.name for path in sorted(folder.iterdir()) if path.is_dir()), "")
    deeper = f". The folder '{inner}' in it is not read" if inner else ""
    if any(i.kind == "image" for i in spec.inputs):
        return f"no images (PNG, JPEG, WebP and BMP are read) and no .npz files with arrays {arrays}{deeper}"
    return f"no .npz files with arrays {arrays}, and none of {', '.join(f'{i.name}.npy' for i in spec.inputs)}{deeper}"


def _require(evaluation: EvaluationSet, least: int, folder: Path | None, why: str) -> None:
    if len(evaluation.names) < least:
        raise DataError(f"the folder '{folder}' has {len(evaluation.names)} different inputs. At least {least} {why}")


def refuse_shared(
    spec: ModelSpec, evaluation: EvaluationSet, calibration_set: EvaluationSet, inputs: Sequence[Input] = ()
) -> None:
    """Raise if an input both calibrates and judges.

    Args:
        spec: The model.
        evaluation: Its evaluation set.
        calibration_set: Its calibration set.
        inputs: The inputs to compare; all by default.

    Raises:
        DataError: With one that is in both.
    """
    compared = inputs or spec.inputs
    digests = dict(zip(_digests(compared, calibration_set, LEVELS), calibration_set.names, strict=True))
    for digest, name in zip(_digests(compared, evaluation, LEVELS), evaluation.names, strict=True):
        if digest in digests:
            raise DataError(
                f"'{name}' of the evaluation set is '{digests[digest]}' of the calibration set. Judge INT8 on inputs "
                "that did not calibrate it"
            )


def _digests(inputs: Sequence[Input], every: EvaluationSet, levels: int = 0) -> list[str]:
    """Return a hash of each row's inputs as the model takes them, or of pictures in so many levels of their range."""
    digests = []
    for row in range(len(every.names)):
        hashed = hashlib.sha256()
        for i in inputs:
            values = runs_of(every.inputs[i.name], [row], len(every.names))
            if levels and i.kind == "image":
                # Adding 0.0 removes negative zeros, which have other bytes.
                values = np.round((values - i.low) * (levels / (i.high - i.low))) + 0.0
            hashed.update(np.ascontiguousarray(values).data)
        digests.append(hashed.hexdigest())
    return digests


def _check_finite(spec: ModelSpec, evaluation: EvaluationSet) -> EvaluationSet:
    """Return a set after a check that its values are finite."""
    for name, array in evaluation.inputs.items():
        rows = np.isfinite(array).reshape(len(evaluation.names), -1).all(1)
        if not rows.all():
            row = evaluation.names[int(np.flatnonzero(~rows)[0])]
            raise DataError(f"sample '{row}' has a NaN or Inf in '{name}'. Remove or correct it")
    return evaluation


def _size(spec: ModelSpec, declared: Input) -> int:
    """Return the rows of one sample: the first size if that is not the batch."""
    return next(iter(spec.shape(declared.name, {BATCH: 1})), 1)


def _require_room(spec: ModelSpec, count: int, folder: Path) -> None:
    row_bytes = sum(math.prod(spec.shape(i.name, {BATCH: 1})) * np.dtype(i.dtype).itemsize for i in spec.inputs)
    if count * row_bytes > MOST_BYTES:
        raise DataError(
            f"the {count} inputs in '{folder}' are {count * row_bytes / 2**30:.1f} GiB as model inputs, more than "
            f"{MOST_BYTES >> 30}. Use a folder with fewer of them"
        )


def _read_pictures(
    spec: ModelSpec, folder: Path, image: Input, paths: Sequence[Path], own: Own | None
) -> EvaluationSet:
    _require_room(spec, len(paths), folder)
    planes = spec_in_planes(spec)
    form, shape = next(i for i in planes.inputs if i.name == image.name), planes.shape(image.name)
    inputs = pack_images(spec, {image.name: np.stack([_image(path, form, shape) for path in paths])})
    for other in (i for i in spec.inputs if i is not image):
        inputs[other.name] = _rows(spec, folder, other, len(paths), own)
    names = tuple(path.relative_to(folder).as_posix() for path in paths)
    if paths[0].parent == folder:
        return EvaluationSet(inputs, names, truth=_labels(spec, folder, names))
    declared = _declared_classes(spec) or class_names(spec, folder)
    return EvaluationSet(inputs, names, truth=np.array([declared.index(path.parent.name) for path in paths], np.int64))


def _image(path: Path, declared: Input, shape: tuple[int, ...]) -> Array:
    """Return one image as the model takes it: [channels, height, width], scaled from bytes to the declared range."""
    channels, height, width = shape[1:]
    pixels = _pixels(path, channels)
    if pixels.shape[:2] != (height, width):
        pixels = in_size(pixels, height, width, declared.fit)
    planes = pixels.transpose(2, 0, 1).astype(np.float32)
    return np.asarray(declared.low + planes * ((declared.high - declared.low) / 255.0), dtype=declared.dtype)


def _pixels(path: Path, channels: int) -> Array:
    """Return a picture as bytes, [height, width, channels]."""
    from PIL import Image, UnidentifiedImageError

    try:
        if not path.is_file() or path.stat().st_size > LARGEST:
            raise ValueError(f"it is not a regular file of at most {LARGEST} bytes")
        with warnings.catch_warnings(action="ignore"), Image.open(path, formats=FORMATS) as image:
            # Checked before decoding: a small file may unpack to gigabytes.
            if image.width * image.height > MOST_PIXELS:
                raise ValueError(f"it has {image.width} x {image.height} pixels, and at most {MOST_PIXELS} are read")
            pixels = pixels_of(image)
            if channels == 1:
                pixels = np.asarray(Image.fromarray(pixels).convert("L"))[..., None]
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"the picture '{path}' cannot be read ({error}). Remove or replace it") from error
    return pixels


def _rows(spec: ModelSpec, folder: Path, declared: Input, count: int, own: Own | None) -> Array:
    """Return the rows of `<input>.npy`, which must be `count`, or any number if that is 0."""
    path, each = folder / f"{declared.name}.npy", _size(spec, declared)
    if not path.is_file():
        if own is None:
            raise DataError(f"the folder '{folder}' has no {path.name}, and '{spec.name}' has no set to take it from")
        return own(declared, count)
    try:
        # Mapped, since its header may claim any size.
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
            raise ValueError("it is not an array of numbers")
    except (OSError, ValueError, EOFError, OverflowError, TokenError) as error:
        raise DataError(f"'{path}' cannot be read ({error}). Write it with numpy.save") from error
    array = pack_images(spec, {declared.name: array})[declared.name]
    row, rows = spec.shape(declared.name, {BATCH: 1})[1:], count * each
    if (
        not array.ndim
        or array.shape[1:] != row
        or (len(array) != rows if rows else not len(array) or len(array) % each)
    ):
        expected = (rows or ("n" if each == 1 else f"{each} n"), *row)
        raise DataError(f"'{path}' has the shape {array.shape}. '{declared.name}' takes {expected}")
    return np.array(array, dtype=declared.dtype)


def _read_archives(spec: ModelSpec, paths: Sequence[Path]) -> EvaluationSet:
    parts: list[dict[str, Array]] = []
    names: list[str] = []
    unpacked = 0
    for path in paths:
        unpacked += _unpacked_size(path)
        if unpacked > MOST_BYTES:
            raise DataError(
                f"'{path.parent}' unpacks to more than {MOST_BYTES >> 30} GiB, with '{path.name}'. Use fewer inputs"
            )
    for path in paths:
        arrays, count = _archive(spec, path)
        parts.append(arrays)
        names += [path.stem] if count == 1 else [f"{path.stem} {row}" for row in range(count)]
        _require_room(spec, len(names), path.parent)
    if odd := next(
        (path for path, part in zip(paths, parts, strict=True) if (TRUTH in part) != (TRUTH in parts[0])), None
    ):
        raise DataError(f"only one of '{odd}' and '{paths[0]}' has '{TRUTH}'. Add it to all files or to none")
    inputs = {i.name: stack_runs(part[i.name] for part in parts) for i in spec.inputs}
    try:
        truth = np.concatenate([part[TRUTH] for part in parts]) if TRUTH in parts[0] else None
    except ValueError as error:
        raise DataError(f"the arrays '{TRUTH}' in '{paths[0].parent}' have different shapes: {error}") from error
    return EvaluationSet(inputs, tuple(names), truth=truth)


def _archive(spec: ModelSpec, path: Path) -> tuple[dict[str, Array], int]:
    """Return the checked arrays of one .npz file, and their number of rows."""
    arrays = _unpack(path)
    takes = [i.name for i in spec.inputs]
    if unknown := [name for name in arrays if name not in (*takes, TRUTH)]:
        meant = suggestion(unknown[0], takes)
        raise DataError(
            f"'{path}' has the array '{unknown[0]}', which '{spec.name}' does not take. {meant}{_takes(takes)}"
        )
    if missing := [name for name in takes if name not in arrays]:
        raise DataError(f"'{path}' has no array '{missing[0]}'. {_takes(takes)}")
    arrays = pack_images(spec, arrays)
    counts = {i.name: _count(spec, i, arrays[i.name], path) for i in spec.inputs}
    count = counts[takes[0]]
    if odd := next((name for name in takes if counts[name] != count), ""):
        raise DataError(
            f"'{path}' has {counts[odd]} rows of '{odd}' and {count} of '{takes[0]}'. Give the same number of each"
        )
    if TRUTH in arrays and (not arrays[TRUTH].ndim or len(arrays[TRUTH]) != count):
        shape = list(arrays[TRUTH].shape)
        raise DataError(f"'{TRUTH}' in '{path}' has the shape {shape}. Give one row per input, [{count}, ...]")
    return {name: np.atleast_1d(array) for name, array in arrays.items()}, count


def _takes(names: Sequence[str]) -> str:
    return f"Arrays: {', '.join(names)}, and '{TRUTH}' for a metric"


def _unpacked_size(path: Path) -> int:
    try:
        if not path.is_file():
            raise ValueError("it is not a regular file")
        with zipfile.ZipFile(path) as archive:
            return sum(entry.file_size for entry in archive.infolist())
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(f"'{path}' cannot be read ({reason(error)}). Write it with numpy.savez") from error


def _unpack(path: Path) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name]) for name in file.files}
    except (OSError, ValueError, EOFError, OverflowError, MemoryError, TokenError, zipfile.BadZipFile) as error:
        raise DataError(f"'{path}' cannot be read ({reason(error)}). Write it with numpy.savez") from error
    if odd := next((name for name, array in arrays.items() if array.dtype.kind not in "fiub"), ""):
        raise DataError(f"'{odd}' in '{path}' is {arrays[odd].dtype}. Store arrays of numbers")
    return arrays


def _count(spec: ModelSpec, i: Input, array: Array, path: Path) -> int:
    """Return the number of rows in an array of an input."""
    row = spec.shape(i.name, {BATCH: 1})
    if array.dtype != i.dtype:
        raise DataError(f"'{i.name}' in '{path}' is {array.dtype}, and '{spec.name}' takes {i.dtype}. Convert it")
    fits = array.ndim <= 1 if not row else array.ndim == len(row) and array.shape[1:] == row[1:]
    each = row[0] if row else 1
    rows = np.atleast_1d(array)
    if not fits or not len(rows) or len(rows) % each:
        expected = ["n" if each == 1 else f"{each} n", *row[1:]]
        opens = [d for d in i.shape if isinstance(d, str) and d != BATCH]
        usual = f". To change the usual size of {opens[0]}, add --axes ...={opens[0]}:MIN..MAX@SIZE" if opens else ""
        shape_text = str(expected).replace("'", "")
        raise DataError(f"'{i.name}' in '{path}' has the shape {list(array.shape)}, not {shape_text}{usual}")
    return len(rows) // each


def _labels(spec: ModelSpec, folder: Path, names: Sequence[str]) -> Array | None:
    """Return the class numbers from the file of labels, int64 [n]; None without such a file."""
    path = next((folder / name for name in LABELS if (folder / name).is_file()), None)
    if path is None:
        return None
    table = _read_labels(path)
    if missing := [name for name in names if name not in table]:
        raise DataError(f"'{path}' has no label for '{missing[0]}'. Add a line file,label for each picture")
    if unknown := [name for name in table if name not in names]:
        raise DataError(f"'{path}' has a label for '{unknown[0]}', which does not exist. Remove it")
    classes = _declared_classes(spec)
    return np.array([_label(path, name, table[name], classes) for name in names], np.int64)


def _read_labels(path: Path) -> dict[str, str]:
    try:
        if path.stat().st_size > MOST_LABELS:
            raise ValueError(f"it has {path.stat().st_size} bytes, and at most {MOST_LABELS} are read")
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix == ".json":
            rows: list[tuple[object, ...]] = list(json.loads(text).items())
        else:
            rows = [tuple(row) for row in csv.reader(text.splitlines()) if row]
            rows = rows[1:] if rows and rows[0] == ("file", "label") else rows
        labels = {str(name).strip(): str(label).strip() for name, label in rows}
    except (OSError, ValueError, AttributeError, TypeError, csv.Error) as error:
        raise DataError(f"'{path}' cannot be read ({reason(error)}). Write lines of file,label") from error
    if len(labels) != len(rows):
        raise DataError(f"'{path}' has two labels for one file. Remove one")
    return labels


def _label(path: Path, name: str, text: str, classes: Sequence[str]) -> int:
    if text in classes:
        return classes.index(text)
    if not text.isdecimal() or (classes and int(text) >= len(classes)):
        possible = f"Classes: {', '.join(classes)}" if classes else "Write the number of its class, from 0"
        raise DataError(f"the label '{text}' of '{name}' in '{path}' is not a class. {possible}")
    return int(text)


def check_integers(inputs: Mapping[str, Array], spec: ModelSpec) -> None:
    """Raise for integers outside a model's declared range.

    Raises:
        DataError: With the value and the range.
    """
    for i in spec.inputs:
        array = inputs[i.name]
        if array.dtype.kind in "iu" and (array.min() < i.low or array.max() > i.high):
            wrong = int(array.min() if array.min() < i.low else array.max())
            raise DataError(
                f"the data has {wrong} for '{i.name}', whose range is {i.low:g} to {i.high:g}. Correct the data, or "
                f"declare --inputs {i.name}:range=MIN..MAX"
            )
