"""Architectures in the formats of other makers: verified, or refused or rejected in a sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import edgekit
from edgekit import registry
from edgekit.artifact.store import read_artifact

FORMATS = (("openvino", "openvino-int8", "coreai", "coreai-int8"), ("litert", "litert-int8"))
"""What is exported together: LiteRT needs an environment of its own."""
ARCHITECTURES = ("targets.phone_models:vit", "networks:resnet", "networks:unet", "networks:lstm")


@pytest.mark.skipif(not os.environ.get("EDGEKIT_SLOW"), reason="takes minutes: set EDGEKIT_SLOW=1")
@pytest.mark.parametrize("formats", FORMATS, ids=("openvino-coreai", "litert"))
@pytest.mark.parametrize("factory", ARCHITECTURES)
def test_architectures_are_verified_or_told_in_a_sentence(
    factory: str, formats: tuple[str, ...], tmp_path: Path
) -> None:
    for target in formats:
        if missing := registry.missing(registry.find(target)):
            pytest.skip(f"needs {missing[0].module}: {missing[0].install}")
    build = edgekit.export(f"tests.{factory}", targets=formats, output=tmp_path, progress="none")
    for outcome in build.outcomes:
        found = read_artifact(outcome.path).verdicts[0] if outcome.status not in ("failed", "skipped") else None
        print(factory, outcome.target, found.status if found else outcome.error, found.reason if found else "")
        assert found is None or found.status in ("verified", "rejected"), outcome.sentences
        assert outcome.error if found is None else found.status == "verified" or found.reason
    assert {outcome.target for outcome in build.outcomes} >= set(formats)
