"""The Python API: `edgekit_inspect.explain` and `edgekit_inspect.profile`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit import report
from edgekit.api import DEFAULT_MODEL, local
from edgekit.artifact.profile import Profile
from edgekit.artifact.run_record import CACHE, MODEL
from edgekit.model.folder import load_builds_model
from edgekit.pipeline import given_model
from edgekit.pipeline.request import names_in
from edgekit.progress import Style, listener_for
from edgekit.storage.host_errors import as_sentences
from edgekit_inspect import attribution
from edgekit_inspect.attribution import Attribution
from edgekit_inspect.profiling import SECONDS, Request, part_of, write_profile
from edgekit_inspect.profiling import profile as measure

if TYPE_CHECKING:
    from edgekit.api import Model

if TYPE_CHECKING:
    from edgekit.api import Model

PROFILE = "profile"


def explain(artifact: str | Path, *, images: int = 8) -> Attribution:
    """Show which modules introduce an fp16 or INT8 ONNX artifact's error, and where it grows.

    Args:
        artifact: The artifact's folder in its build.
        images: Evaluation images to run.
    """
    return attribution.explain(local(artifact, writable=True), images)


@as_sentences()
def profile(
    model: Model = DEFAULT_MODEL,
    *,
    example: Any = None,
    device: str = "cpu",
    batches: Iterable[int] = (1,),
    modes: Iterable[str] = (),
    module: str = "",
    rate: float = 0.0,
    seconds: float = SECONDS,
    output: str | Path | None = None,
    trust_build: bool = False,
    progress: Style = "auto",
) -> Profile:
    """Time a model in each PyTorch mode, the cost of compiling, and a build's verified artifacts.

    Args:
        model: As for `export`; or a build's folder or URL.
        example: As for `export`.
        device: "cpu" or "cuda".
        batches: Batch sizes.
        modes: Names of the modes; empty means all.
        module: Path of a single module to profile, as in `named_modules()`; empty for the whole model.
        rate: Runs per second, for the time until compiling has paid off; 0 for none.
        seconds: Minimum timing of each mode.
        output: Folder for profile.json and profile.svg; by default a build's `cache`, else nothing is written.
        trust_build: As for `verify`.
        progress: As for `export`.
    """
    if isinstance(model, str) and "://" in model:
        model = local(model, writable=True, progress=progress)
    build = Path(model) if isinstance(model, str | Path) and (Path(model) / MODEL).is_dir() else None
    if build is not None:
        spec = load_builds_model(build / MODEL, trust_build)
    else:
        spec = given_model.resolve_model(model, example)
    spec = part_of(spec, module) if module else spec
    request = Request(device, tuple(batches), names_in(modes), rate, seconds, None if module else build, trust_build)
    with listener_for(progress) as listener:
        result = measure(spec, request, lambda share, text: listener.progress(PROFILE, share, text))
        listener.done(PROFILE)
    own = build / CACHE if build is not None and not module else None
    folder = Path(output) if output is not None else own
    if folder is not None:
        write_profile(result, folder)
    if build is not None and folder == own:
        report.write_report(build)
    return result
