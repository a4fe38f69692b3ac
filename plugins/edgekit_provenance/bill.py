"""The bill of materials of a build: `bom.cdx.json`, a CycloneDX ML-BOM.

It names the model, the data of its verdicts, the artifacts, and the libraries that made them, with versions and
licences. Missing facts are marked as not stated. The same build gives the same bytes: the bill holds no time, and its
serial number is made from its content.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.artifact.manifest import Manifest
from edgekit.artifact.run_record import MODEL, REFERENCE
from edgekit.errors import DISTRIBUTION, DependencyError, install_command
from edgekit.model.records import WEIGHTS, read_config
from edgekit.pipeline.outcome import Build
from edgekit.reference.batches import EVALUATION, PHOTOGRAPHS
from edgekit.reference.info import ReferenceInfo, read_info
from edgekit.storage.files import dump_json, write_text

if TYPE_CHECKING:
    from cyclonedx.model.component import Component

BILL = "bom.cdx.json"
NOT_STATED = "not stated"
LICENCE = "edgekit:licence"
LONGEST_NAME = 60
"""Longest name of a licence; some packages state its whole text."""
# Namespace of the serial numbers, drawn once.
SERIALS = uuid.UUID("c0d5e2a6-6a0e-5d0b-9b1c-5c3f6d8f3a11")


def require_library() -> None:
    """Check that the library that writes bills is installed.

    Raises:
        DependencyError: If it is not.
    """
    try:
        import cyclonedx.output.json
    except ImportError as error:
        raise DependencyError(
            f"a bill of materials needs cyclonedx-python-lib ({error}). Run: {install_command('sign')}"
        ) from error
    del cyclonedx


def bill_writer() -> Callable[[Build], Path]:
    """Return the function that writes a build's bill, after checking that its library is installed.

    Raises:
        DependencyError: If it is not.
    """
    require_library()
    return write_bill


def write_bill(build: Build) -> Path:
    """Write the bill of the artifacts that a run made or kept; rejected ones are in it with their verdicts.

    Raises:
        DependencyError: If the library is not installed.
        ModelError: If the build's model has changed.
    """
    require_library()
    manifests = [outcome.manifest for outcome in build.outcomes if outcome.manifest is not None]
    text = bill_text(read_config(build.path / MODEL), read_info(build.path / REFERENCE), manifests)
    write_text(build.path / BILL, text)
    return build.path / BILL


def bill_text(config: Mapping[str, Any], reference_info: ReferenceInfo, manifests: Iterable[Manifest]) -> str:
    """Return the bill's text.

    Args:
        config: The model's config.json.
        reference_info: The contents of reference.json.
        manifests: The artifacts.
    """
    from cyclonedx.model.bom import Bom, BomMetaData
    from cyclonedx.model.tool import ToolRepository
    from cyclonedx.output.json import JsonV1Dot6

    artifacts = tuple(manifests)
    try:
        own = metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        own = ""
    tools = {DISTRIBUTION: own, **{n: v for artifact in artifacts for n, v in artifact.export.tools.items()}}
    model = _model(config, reference_info)
    # The data are the sets of real inputs on which the artifacts were judged.
    data = []
    for batch in reference_info.batches:
        if batch.name in (EVALUATION, PHOTOGRAPHS):
            facts = {"edgekit:samples": str(len(batch.names)), "edgekit:arrays.sha256": batch.inputs_sha256}
            data.append(_component(f"data:{batch.name}", batch.name, "", "data", properties=facts))
    parts = [_artifact(artifact, str(config["licence"])) for artifact in artifacts]
    bom = Bom(
        metadata=BomMetaData(
            component=model, tools=ToolRepository(components=[_tool(*tool) for tool in tools.items()])
        ),
        components=[*data, *parts],
    )
    bom.register_dependency(model, data)
    for part in parts:
        bom.register_dependency(part, [model])
    record = json.loads(JsonV1Dot6(bom).output_as_string())
    del record["metadata"]["timestamp"], record["serialNumber"]
    return dump_json({**record, "serialNumber": uuid.uuid5(SERIALS, dump_json(record)).urn})


def _model(config: Mapping[str, Any], reference_info: ReferenceInfo) -> Component:
    properties = {"edgekit:factory": str(config["factory"]) or "none: it was given in memory, or as an ONNX file"}
    properties |= {"edgekit:reference.device": reference_info.device, "edgekit:reference.sha256": reference_info.sha256}
    return _component(
        "model",
        str(config["name"]),
        str(config["licence"]),
        sha256=config["files"].get(WEIGHTS, ""),
        author=str(config["author"]),
        description=str(config["description"]),
        properties=properties,
    )


def _artifact(manifest: Manifest, licence: str) -> Component:
    properties = {"edgekit:target": manifest.target, "edgekit:precision": manifest.precision}
    properties |= {f"edgekit:verdict.{verdict.place}": verdict.status for verdict in manifest.verdicts}
    properties |= {f"edgekit:tool.{name}": version for name, version in manifest.export.tools.items()}
    name, ref = f"{manifest.name}/{manifest.target}", f"artifact:{manifest.target}"
    entry = manifest.entry_of(manifest.entry)
    whole = _component(ref, name, licence, sha256=entry.sha256 if entry is not None else "", properties=properties)
    files = (file for file in manifest.files if file.path != manifest.entry)
    whole.components = [_component(f"{ref}/{f.path}", f.path, licence, "file", sha256=f.sha256) for f in files]
    return whole


def _tool(name: str, version: str) -> Component:
    from cyclonedx.model.component import ComponentType
    from packageurl import PackageURL

    tool = _component(f"tool:{name}", name, _licence_of(name), ComponentType.LIBRARY.value)
    tool.version, tool.purl = version, PackageURL("pypi", None, name, version)
    return tool


def _component(
    ref: str,
    name: str,
    licence: str,
    kind: str = "machine-learning-model",
    sha256: str = "",
    author: str = "",
    description: str = "",
    properties: Mapping[str, str] | None = None,
) -> Component:
    from cyclonedx.contrib.license.factories import LicenseFactory
    from cyclonedx.model import HashAlgorithm, HashType, Property
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.contact import OrganizationalContact

    properties = {**(properties or {}), **({} if licence else {LICENCE: NOT_STATED})}
    return Component(
        type=ComponentType(kind),
        bom_ref=ref,
        name=name,
        description=description or None,
        authors=[OrganizationalContact(name=author)] if author else [],
        licenses=[LicenseFactory().make_from_string(licence)] if licence else [],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256)] if sha256 else [],
        properties=[Property(name=property_name, value=value) for property_name, value in sorted(properties.items())],
    )


def _licence_of(package: str) -> str:
    """Return an installed package's licence, an SPDX expression or a name; empty if it states none."""
    try:
        facts = metadata.metadata(package).json
    except metadata.PackageNotFoundError:
        return ""
    if expression := str(facts.get("license_expression", "")):
        return expression
    name = str(facts.get("license", ""))
    classifiers = [c.rpartition(" :: ")[2] for c in facts.get("classifier", ()) if c.startswith("License :: ")]
    return name if name and len(name) <= LONGEST_NAME and name != "UNKNOWN" else " AND ".join(classifiers)
