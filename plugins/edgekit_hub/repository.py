"""A model repository of the Hugging Face hub as a model: `hf:ORG/NAME`, or `hf:ORG/NAME@REVISION`.

huggingface_hub fetches it: its cache, its token, and `HF_HUB_OFFLINE=1` apply. The files decide what it is: a folder of
transformers, one of timm, or an ONNX file in the layout of transformers.js. Only configurations, vocabularies,
safetensors and ONNX are fetched: pickled weights and a repository's own code are never opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from edgekit.errors import DependencyError, HostError, ModelError, UsageError, reason
from edgekit.model.overrides import SpecOverrides
from edgekit.model.parts import CompositeModel
from edgekit.model.sources.checkpoint import slug
from edgekit.model.sources.onnx import open_file
from edgekit.model.spec import ModelSpec
from edgekit.storage.files import load_json
from edgekit_hub import timm, transformers

PREFIX = "hf:"
DESCRIPTIONS = ("*.json", "*.txt", "*.model", "README.md")
WEIGHTS = "*.safetensors"
GRAPHS = ("onnx/model.onnx", "model.onnx")
"""The fp32 graph in the layout of transformers.js and optimum."""


def open_repository(name: str, words: SpecOverrides, task: str) -> ModelSpec | CompositeModel:
    """Return the model of a repository, named after it.

    Args:
        name: "ORG/NAME" or "ORG/NAME@REVISION" (a branch, a tag or a commit).
        words: The user's facts about its inputs, outputs and axes.
        task: The task, by optimum's names; for repositories of transformers only.

    Raises:
        UsageError: If the name has another form.
        HostError: If the hub cannot be reached and the cache lacks the repository.
        ModelError: If it does not exist, or holds no weights that edgekit opens.
    """
    repository, _, revision = name.partition("@")
    folder = _fetch(repository, revision, (*DESCRIPTIONS, WEIGHTS))
    own = slug(repository.partition("/")[2]) or "model"
    if any(folder.glob(WEIGHTS)):
        config = load_json((folder / timm.CONFIG).read_text()) if (folder / timm.CONFIG).is_file() else {}
        if "architecture" in config and not task:
            return replace(timm.open_model(str(folder), words, task), name=own)
        model = replace(transformers.open_folder(str(folder), words, task), name=own)
        if isinstance(model, CompositeModel):
            source = f"{repository} at {folder.name}, of the Hugging Face hub"
            model = replace(model, card={**model.card, "source": source, "base_model": repository})
        return model
    # A second file may hold the weights.
    folder = _fetch(repository, revision, [*GRAPHS, *(f"{graph}_data" for graph in GRAPHS)])
    graph = next((path for path in map(folder.joinpath, GRAPHS) if path.is_file()), None)
    if graph is None:
        raise ModelError(
            f"'{PREFIX}{name}' holds no {WEIGHTS} and no {GRAPHS[0]}. edgekit opens no pickled weights: convert them "
            "to safetensors, or name another repository"
        )
    if task:
        raise UsageError(f"'{PREFIX}{name}' is an ONNX file, which has no other tasks. Leave out --task")
    return replace(open_file(str(graph), words, task), name=own)


def check_name(name: str) -> None:
    """Check the form of a repository's name.

    Raises:
        UsageError: If it is not ORG/NAME, or ORG/NAME@REVISION.
    """
    repository, _, revision = name.partition("@")
    if repository.count("/") != 1 or not all(repository.split("/")) or (name.endswith("@") and not revision):
        raise UsageError(f"'{PREFIX}{name}' names no repository. Write {PREFIX}ORG/NAME, or {PREFIX}ORG/NAME@REVISION")


def _fetch(repository: str, revision: str, patterns: Sequence[str]) -> Path:
    """Return the folder of a repository's snapshot in huggingface_hub's cache, with the files of some patterns."""
    check_name(repository)
    try:
        from huggingface_hub import errors, snapshot_download
    except ImportError as error:
        raise DependencyError(f"'{PREFIX}NAME' needs huggingface_hub: pip install huggingface_hub ({error})") from error
    name = f"'{PREFIX}{repository}{f'@{revision}' if revision else ''}'"
    try:
        return Path(snapshot_download(repository, revision=revision or None, allow_patterns=list(patterns)))
    except errors.GatedRepoError as error:
        raise ModelError(
            f"{name} needs its owner's consent. Ask for it on its page, then run `hf auth login`"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ModelError(f"{name} has no such revision. Name a branch, a tag or a commit") from error
    except errors.RepositoryNotFoundError as error:
        raise ModelError(f"{name} does not exist, or is private. Check the name, or run `hf auth login`") from error
    except errors.HFValidationError as error:
        raise UsageError(f"{name} names no repository: {reason(error)}") from error
    except errors.LocalEntryNotFoundError as error:
        raise HostError(
            f"{name} is not in the cache of huggingface_hub, and the hub cannot be reached. Go online (unset "
            "HF_HUB_OFFLINE), or fetch it elsewhere with `hf download`"
        ) from error
    except (errors.HfHubHTTPError, OSError) as error:
        raise HostError(f"{name} cannot be fetched ({reason(error)}). Try again") from error
