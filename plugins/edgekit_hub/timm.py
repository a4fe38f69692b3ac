"""A timm model with its weights as a ModelSpec: `timm:FOLDER`, or `timm:NAME` if the local cache has the weights.

A folder holds `config.json` and `model.safetensors` in timm's format, as in its repositories. edgekit downloads
nothing. Mean and deviation of its images are part of the model, so that callers cannot get them wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgekit.errors import DependencyError, ModelError, did_you_mean
from edgekit.model.overrides import SpecOverrides
from edgekit.model.sources.checkpoint import slug
from edgekit.model.sources.factory import apply_overrides
from edgekit.model.spec import Axis, Input, ModelSpec, Output
from edgekit.storage.files import load_json

PREFIX = "timm:"
CONFIG, WEIGHTS = "config.json", "model.safetensors"
KEPT = "timm.json"
"""The folder's config.json in a model folder."""
PIXELS, COLOURS = 224, 3
FITS = {"squash": "stretch", "border": "letterbox"}
"""timm's crop mode -> the rule for resizing; "crop" for any other."""


def open_model(model: str, words: SpecOverrides, task: str) -> ModelSpec:
    """Return a timm model with the user's facts, as `spec_of_timm`."""
    return apply_overrides(spec_of_timm(model), words)


def spec_of_timm(model: str) -> ModelSpec:
    """Describe a timm model, with its weights.

    Args:
        model: A folder, or timm's name: "resnet18.a1_in1k".

    Raises:
        DependencyError: If timm is not installed.
        ModelError: If the model does not exist, or its weights are not on this machine.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    folder = Path(model) if (Path(model) / CONFIG).is_file() else _cache_folder(model)
    spec = _spec(slug(model if folder != Path(model) else folder.resolve().name) or "model", folder / CONFIG)
    try:
        spec.module.load_state_dict(load_file(folder / WEIGHTS))
    except (OSError, SafetensorError) as error:
        raise ModelError(f"'{folder / WEIGHTS}' cannot be read ({error}). Save or fetch the model again") from error
    except RuntimeError as error:
        raise ModelError(f"'{folder / WEIGHTS}' holds other weights than '{folder / CONFIG}' describes") from error
    return spec


def spec_of_files(files: Mapping[str, Path]) -> ModelSpec:
    """Make a stored model again from its config file; the caller loads the weights."""
    return _spec("model", files[KEPT])


def _cache_folder(name: str) -> Path:
    """Return the folder of a model's weights in the cache of the Hugging Face hub.

    Raises:
        ModelError: If timm does not have this model, or the cache does not hold it.
    """
    timm, names = _timm(), _timm().list_pretrained()
    repository = next((candidate for candidate in names if name in (candidate, candidate.partition(".")[0])), None)
    if repository is None:
        every = timm.list_models()
        if name in every:
            raise ModelError(f"timm has no weights for '{name}'. Give a folder with {CONFIG} and {WEIGHTS}")
        meant = did_you_mean(name, every) or "`timm.list_models()` lists all models"
        raise ModelError(f"timm has no model '{name}', and no such folder exists. {meant}")
    repository = timm.get_pretrained_cfg(name if "." in name else repository).hf_hub_id or f"timm/{repository}"
    from huggingface_hub import try_to_load_from_cache

    paths = [try_to_load_from_cache(repository, file) for file in (CONFIG, WEIGHTS)]
    if not all(isinstance(path, str) for path in paths):
        raise ModelError(
            f"the weights of '{name}' are not on this machine, and edgekit downloads nothing. Fetch them with "
            f"`hf download {repository} {CONFIG} {WEIGHTS}`, or give a folder that holds both"
        )
    return Path(str(paths[0])).parent


def _spec(name: str, config: Path) -> ModelSpec:
    try:
        content = load_json(config.read_text())
        if not isinstance(content, dict):
            raise ValueError("no object")
    except (OSError, ValueError) as error:
        raise ModelError(f"'{config}' cannot be read ({error}). Save or fetch the model again") from error
    pretrained, architecture = content.get("pretrained_cfg") or {}, str(content.get("architecture", ""))
    if architecture not in _timm().list_models():
        raise ModelError(f"'{config}' names the architecture '{architecture}', which the installed timm lacks")
    # timm treats a missing number of classes in the same way.
    arguments = {"num_classes": content.get("num_classes", 0), **(content.get("model_args") or {})}
    colours, *size = pretrained.get("input_size") or (COLOURS, PIXELS, PIXELS)
    if (colours := arguments.get("in_chans", colours)) != COLOURS:
        raise ModelError(f"'{config}' describes a model of images with {colours} channels. It must be {COLOURS}, RGB")
    module = _timm().create_model(architecture, pretrained=False, **arguments).eval()
    requested, classes = arguments.get("img_size", size), int(arguments["num_classes"] or 0)
    high, wide = requested if isinstance(requested, list) else (requested, requested)
    fit: Any = FITS.get(str(pretrained.get("crop_mode")), "crop")
    mean, std = (tuple(float(value) for value in pretrained.get(key) or ()) for key in ("mean", "std"))
    pictures = Input("images", ("batch", COLOURS, int(high), int(wide)), kind="image", fit=fit)
    # The class names in order, if config.json has them.
    names, descriptions = content.get("label_names") or [], content.get("label_descriptions") or {}
    is_named = isinstance(names, list) and len(names) == classes
    texts = tuple(str(descriptions.get(label, label)) for label in names) if is_named else ()
    output = Output("logits", role="logits", classes=texts) if classes else Output("embedding", "embedding")
    return ModelSpec(
        name=name,
        module=module,
        inputs=(replace(pictures, mean=mean, std=std),),
        outputs=(output,),
        axes={"batch": Axis(1, 1, 4)},
        factory=f"{PREFIX}{architecture}",
        files={KEPT: config},
    )


def _timm() -> Any:
    try:
        import timm
    # A torchvision of another PyTorch raises RuntimeError.
    except (ImportError, RuntimeError) as error:
        raise DependencyError(
            f"'{PREFIX}NAME' needs timm and torchvision: pip install timm ({type(error).__name__}: {error})"
        ) from error
    return timm
