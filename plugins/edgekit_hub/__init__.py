"""Models of the Hugging Face libraries, and folders for transformers.js and optimum."""

from __future__ import annotations

from edgekit.doors import Source

TRANSFORMERS = Source(
    form="transformers:FOLDER",
    prefix="transformers:",
    open="edgekit_hub.transformers:open_folder",
    restore="edgekit_hub.transformers:spec_of_files",
    check="edgekit_hub.transformers:check_folder",
    takes_task=True,
)
TIMM = Source(
    form="timm:NAME",
    prefix="timm:",
    open="edgekit_hub.timm:open_model",
    restore="edgekit_hub.timm:spec_of_files",
)
REPOSITORY = Source(
    form="hf:ORG/NAME",
    prefix="hf:",
    open="edgekit_hub.repository:open_repository",
    check="edgekit_hub.repository:check_name",
    push="edgekit_hub.upload:uploader",
    takes_task=True,
)
