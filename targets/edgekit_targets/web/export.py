"""A static folder for browsers: the proved ONNX variants, a page and a library that run them, and golden vectors.

It works on any static host, offline too, and fetches only from its own origin. The library checks the golden vectors on
the user's own device before it answers, and falls back if a result is off (see web/README.md).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.artifact.manifest import Variant
from edgekit.artifact.option import OptionValue
from edgekit.artifact.store import read_artifact, read_file
from edgekit.errors import ExportError, UsageError
from edgekit.model.folder import load_model
from edgekit.model.image_input import refuse_other_forms
from edgekit.reference import golden
from edgekit.runtime.ort import OrtRuntime
from edgekit.storage.files import digest_file, digest_text
from edgekit.target import (
    FP16,
    FP32,
    FP32_DELEGATED,
    INT8,
    Bundle,
    ExportResult,
    Job,
    Need,
    Option,
    Place,
    Runtime,
    SourceRequirements,
    Target,
    TargetDescription,
)
from edgekit_targets.web import samples as samples_module
from edgekit_targets.web import site

if TYPE_CHECKING:
    from edgekit.model.spec import ModelSpec

ENTRY = "index.html"
INT8_TARGETS = ("onnx-int8-static", "onnx-int8-dynamic")
# transformers.js looks for these file names, so a bundle opens there too.
FIRST = ("q8", "fp32")
"""Variants from which a page on WASM chooses one by default."""
PATHS = {"fp32": "onnx/model.onnx", "fp16": "onnx/model_fp16.onnx", "q8": "onnx/model_quantized.onnx"}
PRECISIONS = {"fp32": "fp32", "fp16": "fp16", "q8": "int8"}

# Of the evaluation set, on WASM. The ONNX artifacts are judged on all of it.
IMAGES_JUDGED = 32
# The fp16 variant computes in fp32, with the kernels of the fp32 variant.
FP16_IMAGES = 8
# Of the evaluation set. SwiftShader takes nine processor-seconds for a run of arr-coc-tiny.
SOFTWARE_IMAGES = 2
ASYNCIFY_NOTE = (
    "the runtime's asyncify build brings WebGPU to browsers without JSPI, for 3.9 MB with brotli. Its file has 25.5"
    " MiB, and common static hosts refuse more than 25 per file"
)
PLACEHOLDER = "EDGEKIT_BUNDLE"
VARIANTS = Option[tuple[str, ...]](
    name="variants",
    default=(),
    choices=tuple((name,) for name in PATHS),
    help="models in the bundle, separated by commas. By default all proved ones. Others are not made",
)
RUNTIME = Option(
    name="runtime",
    default="jspi",
    help="build of onnxruntime-web. asyncify has WebGPU even if a browser lacks JSPI",
    choices=("jspi", "asyncify"),
)
IMAGES = Option(
    name="images",
    default="some",
    help="evaluation images and shapes judged in the browser",
    choices=("some", "all"),
)
INT8_SOURCE = Option(
    name="int8", default="auto", help="INT8 artifact in the bundle", choices=("auto", "static", "dynamic")
)


def export(source: Path, out: Path, job: Job) -> ExportResult:
    """Make a bundle from the ONNX artifacts."""
    spec = load_model(job.model)
    refuse_other_forms(spec.inputs, "the bundle's library gives")
    asyncify = job.get(RUNTIME) == "asyncify"
    job.progress(0.05, "building the page")
    site.copy(site.find(), out, asyncify)
    artifacts = _choose(source, job)
    (out / "onnx").mkdir()
    for name, folder in artifacts.items():
        artifact = read_artifact(folder)
        (out / PATHS[name]).write_bytes(read_file(folder, artifact, artifact.entry))
    for file in spec.files:
        shutil.copyfile(job.model / file, out / file)
    job.progress(0.3, "choosing golden vectors")
    notes, path = _write_golden(spec, job, out, tuple(artifacts))
    with closing(OrtRuntime(out / PATHS["fp32"])) as fp32:
        samples_module.write(spec, job.model, job.reference, out, fp32.run)
    site.write_headers(out)
    _stamp(out)
    site.compress(out, lambda share: job.progress(0.5 + 0.5 * share, "compressing"))
    variants = tuple(
        Variant(
            name=name,
            precision=PRECISIONS[name],
            path=PATHS[name],
            target=read_artifact(folder).target,
            first_visit=_transfer_size(first_visit(out, name)) if name in FIRST else 0,
        )
        for name, folder in artifacts.items()
    )
    return ExportResult(
        precision="mixed",
        entry=ENTRY,
        dynamic=job.dynamic,
        notes=(*notes, *(ASYNCIFY_NOTE,) * asyncify),
        variants=variants,
        golden=path,
    )


def parts(options: Mapping[str, OptionValue]) -> tuple[tuple[str, ...], ...]:
    """Return the targets of a full bundle: fp16, and both INT8 ones, of which the better verified one goes in."""
    variants, int8_source = options[VARIANTS.name], options[INT8_SOURCE.name]
    names = variants if isinstance(variants, tuple) and variants else tuple(PATHS)
    int8 = tuple(target for target in INT8_TARGETS if int8_source in ("auto", target.removeprefix("onnx-int8-")))
    by_variant = {"fp16": ("onnx-fp16",), "q8": int8}
    return tuple(group for name, group in by_variant.items() if name in names)


def load(artifact: Path, place: Place) -> Runtime:
    """Load a variant in Chromium, on WASM or WebGPU."""
    from edgekit_targets.web.browser import BrowserRuntime

    return BrowserRuntime(artifact, place.settings["device"], place.variant)


def _choose(source: Path, job: Job) -> dict[str, Path]:
    """Return the artifact of each variant that the user wants and the judge did not reject."""
    artifacts = {"fp32": source}
    if "onnx-fp16" in job.artifacts:
        artifacts["fp16"] = job.artifacts["onnx-fp16"]
    int8_source = job.get(INT8_SOURCE)
    for target in INT8_TARGETS:
        if target in job.artifacts and int8_source in ("auto", target.removeprefix("onnx-int8-")):
            artifacts.setdefault("q8", job.artifacts[target])
    variants = job.get(VARIANTS)
    if variants and "fp32" not in variants:
        raise UsageError(f"the variants '{','.join(variants)}' lack fp32, the fallback of the others. Add it")
    absent = [name for name in variants if name not in artifacts]
    if absent:
        raise ExportError(f"the variant '{absent[0]}' has no artifact. Export it in the same run")
    return {name: folder for name, folder in artifacts.items() if not variants or name in variants}


def _write_golden(spec: ModelSpec, job: Job, out: Path, names: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Write the golden vectors. Return notes, and the path of golden.json."""
    with closing(OrtRuntime(out / PATHS["fp32"])) as fp32:
        cases = golden.choose_golden(spec, job.reference, fp32.run, job.dynamic)
        if not cases.cases:
            return ("an input has a dtype that golden vectors cannot hold, so the bundle has no self-test",), ""
        limits = {"delegated": cases.limits("delegated", {})}
        for name in names:
            with closing(OrtRuntime(out / PATHS[name])) as runtime:
                limits[name] = cases.limits(PRECISIONS[name], cases.largest_errors(runtime.run))
        unseen = {fault for name in names for fault in cases.undetected_faults(fp32.run, limits[name])}
    notes = tuple(f"the golden vectors do not show every fault of preprocessing: {fault}" for fault in sorted(unseen))
    return notes, golden.write_golden(out, cases, limits)


def _stamp(out: Path) -> None:
    """Write the hash of all files into the service worker, so that a new bundle has a new worker."""
    script = out / "sw.js"
    paths = sorted(p for p in out.rglob("*") if p.is_file())
    lines = "\n".join(f"{p.relative_to(out).as_posix()} {digest_file(p)}" for p in paths)
    text = script.read_text()
    if PLACEHOLDER not in text:
        raise ExportError("the page's service worker has no place for the bundle's hash. Build the page again")
    script.write_text(text.replace(PLACEHOLDER, digest_text(lines)[:16]))


def first_visit(out: Path, variant: str) -> list[Path]:
    """Return the files that a first visit loads until its first answer on WASM, except manifest and sample picture."""
    parts = ["index.html", "icon.svg", "app.webmanifest", "assets/*", "ort/*wasm.min.mjs"]
    parts += ["ort/ort-wasm-simd-threaded.mjs", "ort/ort-wasm-simd-threaded.wasm"]
    parts += ["vocabulary.json", "presence.json", "samples.json", PATHS[variant]]
    return [p for part in parts for p in out.glob(part) if p.suffix not in site.COMPRESSED]


def _transfer_size(files: Iterable[Path]) -> int:
    """Return the bytes of files, with brotli if they are stored in that form."""
    stored = ((p.with_name(f"{p.name}.br"), p) for p in files)
    return sum((small if small.is_file() else plain).stat().st_size for small, plain in stored)


TARGET = Target(
    summary="static folder for browsers: page, library, proved variants, golden vectors",
    about=TargetDescription(
        use_case="browsers: page, library, offline",
        proved_by="Chromium, with WebGPU in software",
        not_covered="real GPUs, Safari, phones",
        audience="browser",
    ),
    reads=SourceRequirements(reference=True, content=site.fingerprint),
    bundle=Bundle(sources=("onnx-fp16", *INT8_TARGETS), parts=parts),
    unavailable_reason=site.unavailable_reason,
    export=export,
    load=load,
    source="onnx",
    needs=(Need("playwright", "web"), Need("brotli", "web")),
    groups=("web",),
    places=(
        Place(name="wasm-fp32", tolerance=FP32, variant="fp32", settings={"device": "wasm"}, sample=IMAGES_JUDGED),
        Place(name="wasm-fp16", tolerance=FP16, variant="fp16", settings={"device": "wasm"}, sample=FP16_IMAGES),
        Place(name="wasm-q8", tolerance=INT8, variant="q8", settings={"device": "wasm"}, sample=IMAGES_JUDGED),
        Place(
            name="webgpu-fp16",
            tolerance=FP16,
            variant="fp16",
            settings={"device": "webgpu"},
            sample=SOFTWARE_IMAGES,
        ),
        Place(
            name="webgpu-fp32",
            tolerance=FP32_DELEGATED,
            variant="fp32",
            settings={"device": "webgpu"},
            sample=SOFTWARE_IMAGES,
        ),
    ),
    options=(VARIANTS, RUNTIME, IMAGES, INT8_SOURCE),
)
