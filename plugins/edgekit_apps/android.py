"""An Android app module: assets, a Kotlin file with typed constants, and settings for its build.

src/main/assets/edgekit/<name>/             the bundle: bundle.json and the files that it names
src/main/kotlin/edgekit/generated/<Name>.kt names, sizes, preprocessing, hashes: nothing to copy by hand
edgekit/edgekit.gradle                      `apply(from = "edgekit/edgekit.gradle")`: models stay uncompressed, and
can be mapped out of the APK
edgekit/<name>.required_operators.config    for a reduced build of ONNX Runtime (`--include_ops_by_config`)
edgekit/<name>.pytorch_operators.yaml       for a reduced build of PyTorch Mobile (`SELECTED_OP_LIST`)
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from edgekit.artifact.manifest import Manifest, TensorInfo
from edgekit.errors import ArtifactError, UsageError, reason
from edgekit.hosts import process
from edgekit.model.onnx_check import every_node
from edgekit_apps.bundle import Bundle, Content, Model, Platform, constants, identifier, identifiers, quote
from edgekit_apps.sync import HOME

ASSETS = "src/main/assets/edgekit"
CODE = "src/main/kotlin/edgekit/generated"
NO_COMPRESS = ("onnx", "ort", "pte", "ptl", "tflite", "mnn", "bin")
"""File endings that the packager must not compress: a compressed file has no offset to map."""
TYPES: dict[type, str] = {str: "String", int: "Int", float: "Double"}
GRADLE = f"""// Written by `edgekit assets`. In the app's build file: apply(from = "edgekit/edgekit.gradle")
android {{
    androidResources {{
        noCompress += [{", ".join(f"'{ending}'" for ending in NO_COMPRESS)}]
    }}
}}
"""


def _require_app(app: Path) -> None:
    builds = [app / name for name in ("build.gradle.kts", "build.gradle")]
    if not (app / "src" / "main").is_dir() or not any(b.is_file() for b in builds):
        raise UsageError(
            f"'{app}' is not an Android app module: it needs build.gradle.kts and src/main. Name the module's folder"
        )


def _files(bundle: Bundle) -> dict[str, Content]:
    contents: dict[str, Content] = {f"{ASSETS}/{bundle.name}/{path}": c for path, c in sorted(bundle.files.items())}
    contents[f"{CODE}/{identifier(bundle.name)}.kt"] = kotlin(bundle).encode()
    contents[f"{HOME}/edgekit.gradle"] = GRADLE.encode()
    onnx = [m.folder / m.manifest.entry for m in bundle.models if m.manifest.target.startswith("onnx")]
    if onnx:
        contents[f"{HOME}/{bundle.name}.required_operators.config"] = required_operators(onnx).encode()
    for model in bundle.models:
        if any(file.path == LISTED for file in model.manifest.files):
            # A list of PyTorch's operators, which a build reads as YAML.
            path = model.folder / LISTED
            data = path.read_bytes()
            if wrong := [line for line in data.splitlines() if not PYTORCH_OPERATOR.fullmatch(line)]:
                raise ArtifactError(
                    f"'{path}' names {wrong[0][:60]!r}, which is not an operator's name. Export the model again"
                )
            contents[f"{HOME}/{bundle.name}.pytorch_operators.yaml"] = data
    return contents


def kotlin(bundle: Bundle) -> str:
    """Return the generated Kotlin file, with every constant from the manifest."""
    manifest = bundle.models[0].manifest
    declared = (*manifest.inputs, *manifest.outputs)
    types = identifiers(declared, ("Models",))
    tensors = "\n\n".join(_tensor(manifest, t, types[t.name]) for t in declared)
    models = ",\n".join(_entry(model) for model in bundle.models)
    return f"""// Written by `edgekit assets android`; do not edit: the next run writes it again.
package edgekit.generated

import android.content.Context
import org.edgekit.ModelBundle
import org.edgekit.android.AssetSource

/** The model '{bundle.name}' in this app's assets. */
object {identifier(bundle.name)} {{
    const val NAME: String = {_text(bundle.name)}
    const val FOLDER: String = {_text(f"edgekit/{bundle.name}")}
    const val MODEL_SHA256: String = {_text(manifest.export.model_sha256)}
    const val REFERENCE: String = {_text(bundle.reference_device)}

{tensors}

    /** The models of the bundle, the best choice first. */
    enum class Models(
        val target: String,
        val path: String,
        val precision: String,
        val size: Long,
        val sha256: String,
    ) {{
{models},
    }}

    /** Open the bundle; `verifyOnce()` hashes all of it once an installation. */
    fun open(context: Context): ModelBundle = ModelBundle(AssetSource(context, FOLDER))
}}
"""


def _tensor(manifest: Manifest, tensor: TensorInfo, kotlin_type: str) -> str:
    body = "\n".join(
        f"        const val {name}: {TYPES[type(value)]} = {_text(value) if isinstance(value, str) else repr(value)}"
        for name, value in constants(manifest, tensor).items()
    )
    return f"    object {kotlin_type} {{\n{body}\n    }}"


def _entry(model: Model) -> str:
    name = model.manifest.target.upper().replace("-", "_")
    values = (model.manifest.target, model.path, model.manifest.precision)
    text = ", ".join(_text(v) for v in values)
    return f"        {name}({text}, {model.size}L, {_text(model.sha256)})"


def _text(text: str) -> str:
    """Return a Kotlin string literal, with `$` escaped since it begins a template."""
    return quote(text).replace("$", "\\$")


TARGETS = (
    "executorch-int8",
    "executorch",
    "litert-int8",
    "litert",
    "onnx-int8-dynamic",
    "onnx-int8-static",
    "onnx",
    "mnn-int8",
    "mnn",
    "torch-mobile",
)

PLATFORM = Platform(
    targets=TARGETS,
    chosen=TARGETS,
    required=(),
    require_app=_require_app,
    files=_files,
)


if TYPE_CHECKING:
    import onnx

OPERATOR = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
LISTED, PYTORCH_OPERATOR = "operators.yaml", re.compile(rb"- [A-Za-z0-9_.:]+")
HEAD = "# Written by `edgekit assets`: python tools/ci_build/build.py ... --include_ops_by_config THIS_FILE\n"


def required_operators(models: Iterable[Path]) -> str:
    """Return the operators of some models, both as stored and as optimised by ONNX Runtime when it loads them.

    Raises:
        ArtifactError: If an operator has an invalid name.
        EdgekitError: If ONNX Runtime refuses one or crashes on it; each is opened in a worker.
    """
    needed: dict[str, set[str]] = defaultdict(set)
    for path in models:
        for opset, names in process.call(operators, {"path": str(path)}).items():
            needed[opset] |= set(names) if isinstance(names, list) else set()
    return HEAD + "".join(f"{opset};{','.join(sorted(names))}\n" for opset, names in sorted(needed.items()))


def operators(path: str, progress: process.Progress) -> dict[str, list[str]]:
    """Return the operators of one model, by domain and opset ("ai.onnx;20"); in a worker."""
    import onnx

    needed: dict[str, set[str]] = defaultdict(set)
    for graph in (onnx.load(path, load_external_data=False), _optimise(path)):
        versions = {o.domain or "ai.onnx": o.version for o in graph.opset_import}
        for node in every_node(graph.graph):
            domain = node.domain or "ai.onnx"
            if not OPERATOR.fullmatch(domain) or not OPERATOR.fullmatch(node.op_type):
                raise ArtifactError(f"'{node.op_type}' of '{domain}' is not an operator's name. Export the model again")
            needed[f"{domain};{versions.get(domain, 1)}"].add(node.op_type)
    return {opset: sorted(names) for opset, names in needed.items()}


def _optimise(path: str) -> onnx.ModelProto:
    import onnx
    import onnxruntime

    with TemporaryDirectory() as scratch:
        optimised_path = Path(scratch) / "optimised.onnx"
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(optimised_path)
        # ONNX Runtime warns that an optimised model is specific to this machine; only its operator names are read.
        options.log_severity_level = 3
        try:
            onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise ArtifactError(f"ONNX Runtime refuses '{path}': {reason(error)}") from error
        return onnx.load(optimised_path)
