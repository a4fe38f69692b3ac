"""A folder of transformers' `save_pretrained` as a ModelSpec: `transformers:FOLDER`; edgekit downloads nothing.

A task with one run makes a graph in the layout of transformers.js and optimum (`one_run_parts`).

The folder's config.json determines the task, and with it the inputs and outputs. Images are given in [0, 1]: mean and
deviation of preprocessor_config.json are part of the model, so that callers cannot get them wrong.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import DependencyError, ModelError, UsageError, suggestion
from edgekit.model.contract import check_spec
from edgekit.model.evaluation_set import BATCH
from edgekit.model.overrides import SpecOverrides
from edgekit.model.parts import CompositeModel, Session
from edgekit.model.sources.checkpoint import slug
from edgekit.model.sources.factory import apply_overrides
from edgekit.model.spec import Array, Axis, Input, ModelSpec, Output
from edgekit.storage.files import load_json
from edgekit_hub import decoder, sentences, seq2seq
from edgekit_hub.card import source_licence
from edgekit_hub.decoder import PAIRS, PART, files_of, pad_texts, prompts

if TYPE_CHECKING:
    import torch

PREFIX = "transformers:"
CONFIG, PREPROCESSING, TOKENIZER = "config.json", "preprocessor_config.json", "tokenizer.json"
KEPT = {CONFIG: "transformers.json", PREPROCESSING: "transformers-preprocessing.json"}
"""The folder's files, and their names in a model folder."""
LOGITS = Output("logits", role="logits")
OUTPUTS = {
    "ForImageClassification": (LOGITS,),
    "ForSemanticSegmentation": (Output("logits", role="logits", axes=("batch", "channels", "height", "width")),),
    # Centre and size, where the role has corners.
    "ForObjectDetection": (LOGITS, Output("pred_boxes")),
    "ForSequenceClassification": (LOGITS,),
    "ForTokenClassification": (LOGITS,),
    "ForQuestionAnswering": (Output("start_logits"), Output("end_logits")),
    "ForMaskedLM": (LOGITS,),
    "ForCausalLM": (LOGITS,),
    "LMHeadModel": (LOGITS,),
    # Only with a task, since its decoder runs once per token.
    "ForConditionalGeneration": (LOGITS,),
    "ForDepthEstimation": (Output("predicted_depth"),),
    "Model": (Output("last_hidden_state"),),
}
"""By the end of the architecture's name; the first match counts. Text runs as a whole, without a cache."""
PAIRED = (Output("image_embeds"), Output("text_embeds"), Output("logits_per_image"))
"""Outputs of a model of images and texts with a tower for each, such as CLIP and SigLIP."""
TEXTS = (Output("logits_per_text"),)
TASKS = {
    decoder.TASK: (("ForCausalLM", "LMHeadModel"), decoder.parts_of),
    seq2seq.TEXT: (("ForConditionalGeneration", "MTModel"), seq2seq.parts_of),
    seq2seq.SPEECH: (("ForConditionalGeneration",), seq2seq.parts_of),
}
"""Tasks that call a model more than once, by optimum's names: the architectures, and the function for the parts."""
PIXELS, COLOURS = 224, 3
TOKENS = 16, 2, 64
"""Default, smallest and largest number of tokens, if the model takes so many."""
ZERO_SHOT = "zero-shot-image-classification"
ONE_RUN_TASKS = {
    "feature-extraction": "Model",
    "text-classification": "ForSequenceClassification",
    "token-classification": "ForTokenClassification",
    "question-answering": "ForQuestionAnswering",
    "fill-mask": "ForMaskedLM",
    "image-classification": "ForImageClassification",
    ZERO_SHOT: "Model",
}
"""Names of tasks in transformers.js and optimum, and the end of their architectures' names."""
PIXEL_VALUES = "pixel_values"
PATCHES = 8
"""Number of patches across a drawn image."""
VISION, TEXT = "vision_model", "text_model"
"""Towers of images and texts, which are also parts: a search embeds its collection once."""
BEST = ("best_text", "best_image", "best_text_of_towers", "best_image_of_towers")
"""Outputs with the nearest match of each image and text."""


def open_folder(folder: str, words: SpecOverrides, task: str) -> ModelSpec | CompositeModel:
    """Return the model of a folder: one graph, or the graphs of a task.

    Raises:
        UsageError: As for `spec_of_folder` and `parts_of_folder`.
        ModelError: As for `spec_of_folder` and `parts_of_folder`.
    """
    if task:
        return parts_of_folder(Path(folder), task)
    return apply_overrides(spec_of_folder(Path(folder)), words)


def check_folder(folder: str) -> None:
    """Check that a folder exists.

    Raises:
        UsageError: If it does not.
    """
    if not Path(folder).is_dir():
        raise UsageError(f"no folder '{folder}'. Name an existing one in '{PREFIX}{folder}'")


def spec_of_folder(folder: Path) -> ModelSpec:
    """Describe the model of a folder, with its weights, as one graph.

    Raises:
        DependencyError: If transformers is not installed.
        ModelError: If the folder does not exist, holds no safetensors weights, or its task is unknown.
    """
    architecture, module, files = _load(folder)
    return _spec(slug(folder.resolve().name) or "model", architecture, module, files)


def parts_of_folder(folder: Path, task: str) -> CompositeModel:
    """Describe the model of a folder for a task, in a model hub's layout.

    Raises:
        DependencyError: As for `spec_of_folder`.
        ModelError: As for `spec_of_folder`, or if it is not made for the task.
        UsageError: If the task is unknown.
    """
    ends = {name: ends for name, (ends, _) in TASKS.items()} | {n: (end,) for n, end in ONE_RUN_TASKS.items()}
    if task not in ends:
        raise UsageError(f"no task '{task}'. {suggestion(task, ends)}Possible: {', '.join(ends)}, or none")
    architecture, module, files = _load(folder)
    fits = task in TASKS or _is_pair(module) == (task == ZERO_SHOT)
    if not architecture.endswith(ends[task]) or not fits:
        what = "pictures and texts" if task == ZERO_SHOT else f"architectures that end in {', '.join(ends[task])}"
        raise ModelError(f"'{folder}' is '{architecture}', but the task '{task}' takes {what}")
    card = {"task": task, "source": f"the folder '{folder.resolve().name}'", **source_licence(folder)}
    if task in TASKS:
        return replace(TASKS[task][1](folder, module.eval()), card=card)
    name = slug(folder.resolve().name) or "model"
    spec = check_spec(replace(_spec(name, architecture, module, files, True), factory=""))
    return replace(one_run_parts(folder, spec, module), card=card)


def _load(folder: Path) -> tuple[str, Any, dict[str, Path]]:
    """Return the architecture of a folder, its model, and the files to keep."""
    if not (folder / CONFIG).is_file():
        raise ModelError(
            f"'{folder / CONFIG}' does not exist. '{PREFIX}FOLDER' takes a folder of save_pretrained, and edgekit "
            f"downloads nothing. Fetch one with `hf download {folder} --local-dir FOLDER`"
        )
    files = {own_name: folder / name for name, own_name in KEPT.items() if (folder / name).is_file()}
    files |= sentences.find_files(folder, _read_any)
    sentences.read_pooling(files, _read_any)
    is_pooled = sentences.KEPT_POOLING in files
    # sentence-transformers loads the bare encoder, whatever head config.json names.
    make = _class("AutoModel" if is_pooled else _architecture(_read(folder / CONFIG), folder))
    try:
        module = make.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, **({"trust_remote_code": False} if is_pooled else {})
        )
        if (folder / TOKENIZER).is_file():
            from tokenizers import Tokenizer

            Tokenizer.from_file(str(folder / TOKENIZER))
    # A folder that somebody else made can make the libraries raise anything.
    except Exception as error:
        why = " ".join(str(error).split())[:300] or type(error).__name__
        raise ModelError(f"'{folder}' cannot be loaded: {why}. Save the model again with save_pretrained") from error
    return type(module).__name__, module, files


def spec_of_files(files: Mapping[str, Path]) -> ModelSpec:
    """Make a stored model again from its config files; the caller loads the weights."""
    path = files.get(KEPT[CONFIG])
    if path is None:
        raise ModelError(f"the build has no '{KEPT[CONFIG]}', which a model of '{PREFIX}' needs. Export it again")
    record = _read(path)
    is_pooled = sentences.KEPT_POOLING in files
    make = _class("AutoModel" if is_pooled else _architecture(record, path.parent))
    try:
        import transformers

        config = transformers.AutoConfig.for_model(**record)
        module = make.from_config(config, trust_remote_code=False) if is_pooled else make(config)
    # A build that somebody else made can make the library raise anything.
    except Exception as error:
        raise ModelError(f"'{path}' describes no model: {' '.join(str(error).split())[:300]}") from error
    return _spec("model", type(module).__name__, module, dict(files))


def _is_pair(module: Any) -> bool:
    return hasattr(module, "logit_scale") and hasattr(module.config, "text_config")


def _spec(name: str, architecture: str, module: Any, files: Mapping[str, Path], normalised: bool = False) -> ModelSpec:
    """Return the model; with `normalised` images, its inputs have transformers' names."""
    config = module.config
    config.use_cache = False
    paired = _is_pair(module)
    outputs = (
        (*PAIRED, *TEXTS * normalised)
        if paired
        else next(outputs for end, outputs in OUTPUTS.items() if architecture.endswith(end))
    )
    # The class names in order, unless config.json has only the default ones.
    labels = {int(number): str(name) for number, name in (getattr(config, "id2label", None) or {}).items()}
    classes = tuple(labels[number] for number in sorted(labels))
    classes = () if classes == tuple(f"LABEL_{number}" for number in range(len(classes))) else classes
    outputs = tuple(replace(o, classes=classes) if o.role == "logits" else o for o in outputs)
    axes = {"batch": decoder.BATCHES}
    inputs: tuple[Input, ...] = ()
    seeing = paired or module.main_input_name == "pixel_values"
    if not seeing:
        _refuse_other_kinds(architecture, module)
    pooling = None if seeing else sentences.read_pooling(files, _read_any)
    if pooling is not None and hasattr(module, "pooler"):
        # The encoder's own pooler is unused, and random if the folder lacks its weights.
        module.pooler = None
    module = module.eval() if seeing else _texts(module.eval())
    if pooling is not None:
        module = sentences.with_pooling(module, pooling, has_states=normalised)
        outputs = (*outputs * normalised, Output(sentences.EMBEDDING, role="embedding"))
    if seeing:
        preprocessing = files.get(KEPT[PREPROCESSING])
        preprocessor = _read(preprocessing) if preprocessing is not None else {}
        size = getattr(config.vision_config if paired else config, "image_size", None) or PIXELS
        high, wide = (int(side) for side in (size if isinstance(size, list | tuple) else (size, size))[:2])
        shape = ("batch", COLOURS, high, wide)
        # Mean and deviation of the channels of [0, 1].
        normal = preprocessor.get("do_normalize", bool(preprocessor))
        mean = (preprocessor.get("image_mean") if normal else None) or [0.0] * COLOURS
        std = (preprocessor.get("image_std") if normal else None) or [1.0] * COLOURS
        module = _pictures(module, *((None, None) if normalised else (mean, std)))
        ends = [(end - m) / s for m, s in zip(mean, std, strict=True) for end in (0, 1)]
        inputs += (
            Input(PIXEL_VALUES, shape, low=min(ends), high=max(ends))
            if normalised
            else Input("images", shape, kind="image"),
        )
    if paired or not seeing:
        rows = "texts" if paired else "batch"
        text = config.text_config if paired else config
        longest = int(getattr(text, "max_position_embeddings", TOKENS[2]))
        axes |= {rows: decoder.BATCHES, "tokens": Axis(min(TOKENS[0], longest), TOKENS[1], min(TOKENS[2], longest))}
        most = text.vocab_size - 1
        inputs += (
            Input("input_ids", (rows, "tokens"), dtype="int64", low=0, high=most),
            Input("attention_mask", (rows, "tokens"), dtype="int64", low=1, high=1),
        )
    return ModelSpec(
        name=name,
        module=module.eval(),
        inputs=inputs,
        outputs=outputs,
        axes=axes,
        factory=f"{PREFIX}{architecture}",
        files=files,
    )


def _pictures(inner: torch.nn.Module, mean: Sequence[float] | None, std: Sequence[float] | None) -> torch.nn.Module:
    """Return the model with images as its first input, normalized by mean and deviation if these are given."""
    import torch

    class Pictures(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = inner
            for name, values in (("mean", mean), ("std", std)):
                self.register_buffer(name, None if values is None else torch.tensor(values).reshape(1, -1, 1, 1))

        def forward(
            self,
            images: torch.Tensor,
            input_ids: torch.Tensor | None = None,
            attention_mask: torch.Tensor | None = None,
        ) -> Any:
            pixels = images if mean is None else (images - self.get_buffer("mean")) / self.get_buffer("std")
            if input_ids is None:
                return self.model(pixel_values=pixels)
            return self.model(pixel_values=pixels, input_ids=input_ids, attention_mask=attention_mask)

    return Pictures()


def _refuse_other_kinds(architecture: str, module: Any) -> None:
    """Refuse a model that is not a single graph of tokens."""
    if getattr(module.config, "is_encoder_decoder", False):
        raise ModelError(
            f"'{architecture}' is an encoder and a decoder that runs once per token. Name its task: --task "
            f"{seq2seq.TEXT}, or {seq2seq.SPEECH} for speech"
        )
    if module.main_input_name != "input_ids":
        raise ModelError(
            f"'{architecture}' takes '{module.main_input_name}', but only pictures and tokens are supported. Write a "
            "function that returns the ModelSpec of the part that you need, and name it as package.module:factory"
        )


def _texts(inner: torch.nn.Module) -> torch.nn.Module:
    """Return the model with its mask as the second argument, where some models have a cache."""
    import torch

    if list(inspect.signature(inner.forward).parameters)[1] == "attention_mask":
        return inner

    class Texts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = inner

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
            return self.model(input_ids=input_ids, attention_mask=attention_mask)

    return Texts()


def _architecture(config: Mapping[str, Any], folder: Path) -> str:
    names = config.get("architectures")
    architecture = str(names[0]) if isinstance(names, list) and names else ""
    if not any(architecture.endswith(end) for end in OUTPUTS):
        possible = ", ".join(end for end in OUTPUTS)
        raise ModelError(
            f"the architecture of '{folder}', '{architecture}', is not supported. Possible: {possible}. For another "
            "one, write a function that returns its ModelSpec, and name it as package.module:factory"
        )
    return architecture


def _class(architecture: str) -> Any:
    try:
        import transformers
    except ImportError as error:
        raise DependencyError(f"'{PREFIX}FOLDER' needs transformers. Run: pip install transformers") from error
    model_class = getattr(transformers, architecture, None)
    if not isinstance(model_class, type):
        raise ModelError(f"the installed transformers {transformers.__version__} has no architecture '{architecture}'")
    return model_class


def _read(path: Path) -> dict[str, Any]:
    content = _read_any(path)
    if not isinstance(content, dict):
        raise ModelError(f"'{path}' cannot be read (it is not an object). Save the model again with save_pretrained")
    return content


def _read_any(path: Path) -> Any:
    try:
        return load_json(path.read_text(), parse_constant=_refuse_constant)
    except (OSError, ValueError) as error:
        raise ModelError(f"'{path}' cannot be read ({error}). Save the model again with save_pretrained") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


@dataclass(frozen=True)
class SingleRun:
    """Runs the model, and its towers if it has two; returns the nearest text of each picture."""

    def __call__(self, parts: Mapping[str, Session], arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return the model's outputs by name."""
        answer = parts[PART].run(arrays)
        if VISION not in parts:
            return answer
        texts = {name: array for name, array in arrays.items() if name != PIXEL_VALUES}
        pictures, words = (
            embeddings / np.linalg.norm(embeddings, axis=-1, keepdims=True)
            for part, some in ((VISION, {PIXEL_VALUES: arrays[PIXEL_VALUES]}), (TEXT, texts))
            for embeddings in [next(iter(parts[part].run(some).values()))]
        )
        similarity = pictures @ words.T
        both = answer["logits_per_image"], similarity
        best = [scores.argmax(axis) for scores in both for axis in (1, 0)]
        return {**answer, "similarity": similarity, **dict(zip(BEST, best, strict=True))}


def one_run_parts(folder: Path, spec: ModelSpec, module: Any) -> CompositeModel:
    """Return a model as one graph with its towers, its hub files, and inputs of texts and pictures.

    Inputs have their names in transformers.js and optimum. Pictures are `pixel_values`, which those libraries normalize
    by mean and deviation themselves.

    Args:
        folder: Written by save_pretrained.
        spec: The folder's model.
        module: The model of transformers.
    """
    paired = {PIXEL_VALUES, "input_ids"} <= {i.name for i in spec.inputs}
    towers = {part: _tower(spec, module, part) for part in (VISION, TEXT)} if paired else {}
    outputs = (*spec.outputs, *([Output("similarity"), *(Output(name, "labels") for name in BEST)] if paired else []))
    return CompositeModel(
        spec.name,
        {PART: spec, **towers},
        SingleRun(),
        list(_pairs(folder, spec)),
        outputs=outputs,
        files=files_of(folder),
    )


def _tower(spec: ModelSpec, inner: Any, part: str) -> ModelSpec:
    """Return one of the towers, with its unnormalized embedding as output."""
    import torch

    seeing = part == VISION
    tower_inputs = [i for i in spec.inputs if (i.name == PIXEL_VALUES) == seeing]
    inputs = tuple(replace(i, shape=(BATCH, *i.shape[1:])) for i in tower_inputs)
    # Without the other tower, whose weights would be written too.
    alone = copy.copy(inner)
    others = ("text",) if seeing else ("vision", "visual")
    alone._modules = {name: module for name, module in inner._modules.items() if not name.startswith(others)}
    features = alone.get_image_features if seeing else alone.get_text_features
    names = [i.name for i in inputs]

    class Tower(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = alone

        def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
            answer = features(**dict(zip(names, tensors, strict=True)))
            embedding: torch.Tensor = getattr(answer, "pooler_output", answer)
            return embedding

    # CLIP projects; SigLIP's towers end with the embedding.
    projected = hasattr(inner, "text_projection")
    name = f"{'image' if seeing else 'text'}_embeds" if projected else "pooler_output"
    axes = {name: axis for name, axis in spec.axes.items() if name in {BATCH, *(d for i in inputs for d in i.shape)}}
    return ModelSpec(part, Tower().eval(), inputs, (Output(name, "embedding"),), axes)


def _pairs(folder: Path, spec: ModelSpec) -> Iterator[dict[str, Array]]:
    """Yield pairs of texts, of pictures, or of both."""
    inputs = {i.name: i for i in spec.inputs}
    most = spec.axes["tokens"].maximum if "tokens" in spec.axes else 1
    texts = prompts(folder, int(inputs["input_ids"].high) + 1) if "input_ids" in inputs else []
    longest = min(max((len(text) for pair in texts for text in pair), default=1), most)
    draw = np.random.default_rng(0)
    for number in range(PAIRS):
        tokens = pad_texts([text[:longest] for text in texts[number]], longest) if texts else {}
        if PIXEL_VALUES in inputs:
            tokens[PIXEL_VALUES] = np.stack([_draw_picture(draw, inputs[PIXEL_VALUES]) for _ in range(2)])
        yield tokens


def _draw_picture(draw: np.random.Generator, pixels: Input) -> Array:
    """Return a picture of coloured patches with some grain, whose values are bytes."""
    channels, high, wide = (size for size in pixels.shape if size != BATCH and isinstance(size, int))
    patches = draw.random((channels, PATCHES, PATCHES))
    rows, columns = (np.arange(size) * PATCHES // size for size in (high, wide))
    shares = patches[:, rows][:, :, columns] + 0.05 * draw.standard_normal((channels, high, wide))
    picture: Array = pixels.low + (pixels.high - pixels.low) * np.rint(255 * shares.clip(0, 1)) / 255
    return picture.astype(np.float32)
