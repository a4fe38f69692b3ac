"""Upload a build to a model repository of the Hugging Face hub: `edgekit export ... --push-to hf:ORG/NAME`.

A build of a task uploads its folder `hub`, any other build the folders of its verified artifacts and its report, all in
one commit. huggingface_hub makes the repository if it does not exist, with the account's default visibility.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator
from pathlib import Path

from edgekit.artifact.run_record import HUB, PARTS, check_hub, read_parts
from edgekit.errors import DependencyError, HostError, UsageError, reason
from edgekit.pipeline.outcome import Build
from edgekit_hub.card import CARD, is_own_card
from edgekit_hub.repository import PREFIX

REPORT = "report.*"


def uploader(name: str) -> Callable[[Build], str]:
    """Check a repository's name and the user's token; return a function that uploads a build and returns its address.

    Args:
        name: "ORG/NAME".

    Raises:
        UsageError: If the name has another form, or there is no token.
        DependencyError: If huggingface_hub is not installed.
    """
    try:
        from huggingface_hub import errors, get_token
        from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # it has no __all__
    except ImportError as error:
        raise DependencyError(
            f"'{PREFIX}{name}' needs huggingface_hub: pip install huggingface_hub ({error})"
        ) from error
    try:
        validate_repo_id(name)
    except errors.HFValidationError as error:
        raise UsageError(f"'{PREFIX}{name}' names no repository: {reason(error)}") from error
    if "/" not in name:
        raise UsageError(f"cannot push to '{PREFIX}{name}', which has no owner. Write {PREFIX}ORG/NAME")
    if not get_token():
        raise UsageError(f"cannot push to '{PREFIX}{name}' without a token. Run `hf auth login`, or set HF_TOKEN")
    return lambda build: upload_build(build, name)


def upload_build(build: Build, name: str) -> str:
    """Upload a build, and return its address; a README.md that somebody else wrote stays in the repository.

    Raises:
        UsageError: If nothing in the build is verified, or the hub refuses the token or the name.
        HostError: If the hub cannot be reached.
    """
    from huggingface_hub import HfApi, errors

    folder, patterns = _choose_files(build)
    here, api = f"The build stays in '{build.path}'", HfApi(library_name="edgekit")
    try:
        address = api.create_repo(name, exist_ok=True)
        has_card = api.file_exists(name, CARD)
        is_kept = has_card and not is_own_card(Path(api.hf_hub_download(name, CARD)).read_text(errors="replace"))
        api.upload_folder(
            repo_id=name,
            folder_path=folder,
            allow_patterns=patterns,
            ignore_patterns=[CARD] if is_kept else [],
            commit_message="Upload verified artifacts of edgekit",
        )
    except errors.HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        if status in (401, 403):
            raise UsageError(
                f"the hub does not let you write to '{PREFIX}{name}' (HTTP {status}). Run `hf auth login` with a token "
                f"that may write to it. {here}"
            ) from error
        raise HostError(f"the hub refuses '{PREFIX}{name}' ({reason(error)}). {here}") from error
    # The HTTP library of huggingface_hub, which depends on its version, has errors of its own.
    except Exception as error:
        raise HostError(
            f"cannot reach the hub to push to '{PREFIX}{name}' ({reason(error)}). Run the same command again. {here}"
        ) from error
    return f"{address}, whose own {CARD} stays: edgekit's is in '{folder}'" if is_kept else str(address)


def _choose_files(build: Build) -> tuple[Path, list[str]]:
    """Return the folder to upload, and the patterns of its files."""
    if build.parts:
        record = read_parts(build.path)
        check_hub(build.path, record)
        if record.hub:
            if not any(path.startswith("onnx/") for path in record.hub):
                raise UsageError(f"'{build.path / HUB}' holds no verified ONNX file to push. Export with -t onnx")
            return build.path / HUB, [glob.escape(path) for path in record.hub]
    patterns = list(_artifact_patterns(build, build.path))
    if not patterns:
        raise UsageError(f"'{build.path}' holds no verified artifact to push. `edgekit report {build.path}` says why")
    return build.path, [*patterns, *([PARTS, f"*/{REPORT}"] if build.parts else [REPORT])]


def _artifact_patterns(build: Build, root: Path) -> Iterator[str]:
    """Yield a pattern for the folder of each verified artifact."""
    for outcome in build.outcomes if not build.parts else ():
        if outcome.status == "verified":
            yield f"{glob.escape(outcome.path.relative_to(root).as_posix())}/*"
    for name, part in build.parts.items():
        whole = {target for target, outcome in build.items() if outcome.status == "verified"}
        for target in whole & part.keys():
            yield f"{glob.escape(name)}/{glob.escape(target)}/*"
