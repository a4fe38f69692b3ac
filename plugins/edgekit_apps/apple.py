"""An Xcode project or Swift package: resources and a Swift file with typed constants.

Edgekit/edgekit/<name>/       the bundle as a folder: bundle.json and the files that it names, the `.mlpackage` too.
                              Add it as a folder reference ("copy"), so that the library can check every hash, and
                              compile the package once on the device
Edgekit/<Name>.swift          names, sizes, preprocessing, hashes: nothing to copy by hand

The privacy manifest that Apple requires of libraries is in the Swift package (mobile/apple); resources need none.
"""

from __future__ import annotations

import re
from pathlib import Path

from edgekit.artifact.manifest import Manifest, TensorInfo
from edgekit.errors import UsageError
from edgekit_apps.bundle import Bundle, Content, Platform, constants, identifier, identifiers, quote

FOLDER = "Edgekit"
CORE_AI = ("coreai", "coreai-int8")
CORE_ML = ("coreml", "coreml-int8")
CORE_AI_BEGINS = 27
"""Version of iOS, after https://developer.apple.com/documentation/coreai"""
KEYWORDS = re.compile(
    "as|break|case|catch|class|continue|default|defer|do|else|enum|extension|false|for|func|if|import|in|init|inout|is|"
    "let|nil|operator|private|protocol|public|repeat|return|self|static|struct|super|switch|throw|throws|true|try|"
    "typealias|var|where|while"
)
"""Keywords of Swift that could be an axis's name."""
OLDEST = 17
"""Minimum version of iOS of the Swift package (mobile/apple/Package.swift)."""


def _require_app(app: Path) -> None:
    if not any(app.glob("*.xcodeproj")) and not any((app / n).is_file() for n in ("Package.swift", "project.yml")):
        raise UsageError(
            f"'{app}' is not an iOS app: it needs an .xcodeproj, a Package.swift or a project.yml. Name its folder"
        )


def _files(bundle: Bundle) -> dict[str, Content]:
    contents: dict[str, Content] = {f"{FOLDER}/edgekit/{bundle.name}/{p}": c for p, c in sorted(bundle.files.items())}
    contents[f"{FOLDER}/{identifier(bundle.name)}.swift"] = swift(bundle).encode()
    return contents


def swift(bundle: Bundle) -> str:
    """Return the generated Swift file, with every constant from the manifest."""
    manifest = bundle.models[0].manifest
    declared = (*manifest.inputs, *manifest.outputs)
    types = identifiers(declared, ("Models",))
    tensors = "\n\n".join(_tensor(manifest, t, types[t.name]) for t in declared)
    cases = "\n".join(f"        case {_case(m.manifest.target)} = {quote(m.manifest.target)}" for m in bundle.models)
    facts = {
        m.manifest.target: (quote(m.path), quote(m.manifest.precision), str(m.size), quote(m.sha256))
        for m in bundle.models
    }
    table = "\n".join(f"            case .{_case(t)}: return ({', '.join(texts)})" for t, texts in facts.items())
    return f"""// Written by `edgekit assets ios`; do not edit: the next run writes it again.
import Edgekit
import Foundation

/// The model '{bundle.name}' in this app's resources.
public enum {identifier(bundle.name)} {{
    public static let name = {quote(bundle.name)}
    public static let folder = {quote(f"edgekit/{bundle.name}")}
    public static let modelSHA256 = {quote(manifest.export.model_sha256)}
    public static let reference = {quote(bundle.reference_device)}

{tensors}

    /// The models of the bundle, the best choice first.
    public enum Models: String, CaseIterable, Sendable {{
{cases}

        public var facts: (path: String, precision: String, size: Int, sha256: String) {{
            switch self {{
{table}
            }}
        }}
    }}

    /// Open the bundle; call `verify()` on the first start of an app version.
    public static func open(in resources: Bundle = .main) throws -> ModelBundle {{
        guard let home = resources.resourceURL else {{ throw EdgekitError("the app has no resources") }}
        return try ModelBundle(folder: home.appendingPathComponent(folder))
    }}
}}
"""


def _tensor(manifest: Manifest, tensor: TensorInfo, swift_type: str) -> str:
    constants_by_name = [(name.lower().replace("_", ""), value) for name, value in constants(manifest, tensor).items()]
    body = "\n".join(
        f"        public static let {f'`{name}`' if KEYWORDS.fullmatch(name) else name} = "
        f"{quote(value) if isinstance(value, str) else repr(value)}"
        for name, value in constants_by_name
    )
    return f"    public enum {swift_type} {{\n{body}\n    }}"


def _case(target: str) -> str:
    first, *others = target.split("-")
    return first + "".join(part.capitalize() for part in others)


def platform(deployment_target: int) -> Platform:
    """Return the kind of app for a minimum version of iOS: Core AI if all its systems have it, else Core ML.

    An app for older systems may hold both if both are requested: its code then chooses with `#available`.

    Raises:
        UsageError: If the version is older than the Swift package's.
    """
    if deployment_target < OLDEST:
        raise UsageError(
            f"the deployment target '{deployment_target}' is too old. The Swift package needs iOS {OLDEST} or later"
        )
    has_core_ai = deployment_target >= CORE_AI_BEGINS
    return Platform(
        targets=CORE_AI + CORE_ML if has_core_ai else CORE_ML + CORE_AI,
        chosen=CORE_AI if has_core_ai else CORE_ML,
        required=() if has_core_ai else CORE_ML,
        require_app=_require_app,
        files=_files,
    )
