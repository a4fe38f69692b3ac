"""`edgekit lint`: a prediction, from published tables, of whether a runtime of a version takes a file.

Nothing is run. Each table in `runtimes/` names its sources and their dates. If no table covers a subject, the result
lists it as not known.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from edgekit.errors import ModelError, UsageError, reason
from edgekit.model.onnx_check import LARGEST, RefusalError, Walk, check_onnx, every_node
from edgekit.model.sources.onnx import external_file
from edgekit_check.files import find_file

NOTE = "a prediction from published tables; edgekit check runs the file"
# The longest name first: `onnxruntime-` is a prefix of two of them.
FAMILIES = ("onnxruntime-web", "onnxruntime", "coreml", "executorch", "openvino")
CONTRIB = "com.microsoft"


@dataclass(frozen=True)
class Finding:
    """A fact about a file that matters to a runtime, in one sentence with the way out."""

    # "impossible" if the tables say that the runtime refuses the file.
    kind: Literal["impossible", "note"]
    subject: str
    text: str


@dataclass(frozen=True)
class Prediction:
    """Findings about a file in one runtime, and the subjects that no table covers; `source` is that of the tables."""

    runtime: str
    findings: tuple[Finding, ...]
    not_known: tuple[str, ...]
    source: tuple[Mapping[str, str], ...]

    @property
    def is_impossible(self) -> bool:
        """Whether the tables say that the runtime refuses the file."""
        return any(finding.kind == "impossible" for finding in self.findings)


@dataclass(frozen=True)
class Runtime:
    """A runtime of one version; `table` is the JSON file of its family, `facts` the entry of the version."""

    name: str
    family: str
    version: str
    table: Mapping[str, Any]
    facts: Mapping[str, Any]

    def check_most(self, fact: str, value: int, subject: str, way: str) -> Iterator[Finding]:
        """Yield a finding if a number of the file is above this version's; `way` is the way out."""
        most = self.facts.get(fact, value)
        if value > most:
            version = next((v for v, facts in self.table["versions"].items() if facts[fact] >= value), "")
            newer = f", or use {self.family}-{version} or newer" if version else ""
            text = f"the file has {subject} {value}, and {self.name} takes at most {most}: {way}{newer}"
            yield Finding("impossible", subject, text)


def _order(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


@functools.cache
def load_table(family: str) -> Mapping[str, Any]:
    """Return the table of a family of runtimes, completed by the family whose facts it shares."""
    table: dict[str, Any] = json.loads((Path(__file__).parent / "runtimes" / f"{family}.json").read_text("utf-8"))
    if "like" in table:
        base = load_table(table["like"])
        versions = {v: {**base["versions"][v], **facts} for v, facts in table["versions"].items()}
        table = {**base, **table, "versions": versions, "source": [*table["source"], *base["source"]]}
    return table


def find_runtime(name: str) -> Runtime:
    """Return the runtime of a name such as "onnxruntime-1.20"; raises UsageError if no table has it."""
    family = next((family for family in FAMILIES if name.startswith(f"{family}-")), "")
    if not family:
        spans = [(family, list(load_table(family)["versions"])) for family in sorted(FAMILIES)]
        choices = ", ".join(f"{family}-{versions[0]} to {versions[-1]}" for family, versions in spans)
        raise UsageError(f"unknown runtime '{name}'. Known runtimes: {choices}")
    table, version = load_table(family), name.removeprefix(f"{family}-")
    if version not in table["versions"]:
        raise UsageError(f"no table has '{name}'. Versions of {family}: {', '.join(table['versions'])}")
    return Runtime(name, family, version, table, table["versions"][version])


def lint(path: Path | str, runtimes: Sequence[str]) -> tuple[Prediction, ...]:
    """Predict from published tables whether runtimes take a file. Raises UsageError and ModelError."""
    selection, file = [find_runtime(name) for name in runtimes], find_file(Path(path))
    # Read once for all runtimes.
    graph = read_facts(file) if file.suffix == ".onnx" else None
    predictions = []
    for runtime in selection:
        table, not_known = runtime.table, list(runtime.table["unknown"])
        if file.suffix not in table["formats"]:
            formats = " or ".join(table["formats"])
            text = f"{table['name']} opens {formats}, not {file.suffix}: export the model with -t {table['target']}"
            findings, not_known = [Finding("impossible", "format", text)], []
        elif graph is not None:
            findings = list(check_graph(graph, runtime))
            contrib = () if _order(runtime.version) >= _order(table["contrib_from"]) else (CONTRIB,)
            domains = sorted({domain for domain, _ in graph.operators} - {"", CONTRIB}.difference(contrib))
            not_known += [f"operators of {d}" for d in domains if d in contrib or "domains" not in table]
            not_known += () if "types" in runtime.facts else ("types",)
        else:
            readers = {".mlpackage": check_package, ".xml": check_openvino}
            findings = list(readers.get(file.suffix, check_flatbuffer)(file, runtime))
            not_known += ("operators of .tflite",) if file.suffix == ".tflite" else ()
        predictions.append(Prediction(runtime.name, tuple(findings), tuple(not_known), tuple(table["source"])))
    return tuple(predictions)


@dataclass(frozen=True)
class OnnxFacts:
    """Facts of an ONNX file; only its size in bytes if Protocol Buffers cannot hold it."""

    size: int
    # Name of the second file with its weights; empty if there is none.
    external: str = ""
    opset: int = 0
    ir: int = 0
    # Pairs of domain and operator, without functions of the file; the domain ai.onnx is "".
    operators: frozenset[tuple[str, str]] = frozenset()
    # As `onnx.TensorProto.DataType` calls them.
    types: frozenset[str] = frozenset()
    # Inputs and outputs with their types.
    values: Mapping[str, str] = field(default_factory=dict)


def read_facts(path: Path) -> OnnxFacts:
    """Read the facts of an ONNX file, without weights that lie in a second file."""
    import onnx

    size = path.stat().st_size
    if size > LARGEST:
        return OnnxFacts(size)
    external = external_file(path)
    check_onnx(path, external)
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:
        raise ModelError(f"'{path}' is not an ONNX file ({reason(error)}). Export it again") from error
    # A function's body has nodes as a graph has, and `every_node` reads nothing else.
    graphs = [model.graph, *(cast("onnx.GraphProto", function) for function in model.functions)]
    nodes = [node for graph in graphs for node in every_node(graph)]
    functions = {(function.domain, function.name) for function in model.functions}
    constants = {tensor.name for tensor in model.graph.initializer}
    values = [v for v in (*model.graph.input, *model.graph.output) if v.name not in constants]
    numbers = {tensor.data_type for tensor in model.graph.initializer}
    numbers |= {value.type.tensor_type.elem_type for value in (*values, *model.graph.value_info)}
    numbers |= {a.t.data_type for n in nodes for a in n.attribute}
    numbers |= {a.i for n in nodes for a in n.attribute if (n.op_type, a.name) == ("Cast", "to")}
    type_names = {number: name for name, number in onnx.TensorProto.DataType.items() if number}
    operators = {("" if n.domain == "ai.onnx" else n.domain, n.op_type) for n in nodes}
    return OnnxFacts(
        size=size,
        external=external,
        opset=max((i.version for i in model.opset_import if i.domain in ("", "ai.onnx")), default=0),
        ir=model.ir_version,
        operators=frozenset(operators - functions),
        types=frozenset(type_names[number] for number in numbers if number in type_names),
        values={v.name: type_names.get(v.type.tensor_type.elem_type, "") for v in values},
    )


def check_graph(graph: OnnxFacts, runtime: Runtime) -> Iterator[Finding]:
    """Yield what the tables say of an ONNX file."""
    from onnx.helper import find_min_ir_version_for, make_opsetid

    from edgekit_targets.onnx.export import OPSET

    if graph.size > LARGEST:
        text = f"the file has {graph.size} bytes, and Protocol Buffers hold 2 GiB: keep the weights in a second file"
        yield Finding("impossible", "size", f"{text}, with onnx.save(..., save_as_external_data=True)")
        return
    if "opset" in runtime.facts:
        opset, ir = runtime.facts["opset"], runtime.facts["ir"]
        # The newest opset that edgekit exports, with the file format that it needs.
        opsets = [
            o for o in map(int, OPSET.choices) if o <= opset and find_min_ir_version_for([make_opsetid("", o)]) <= ir
        ]
        export = f"export the model again with -t onnx -O onnx.opset={max(opsets)}"
        yield from runtime.check_most("opset", graph.opset, "opset", export)
        way = f"{export}, or set ir_version to {ir} and save the file with onnx"
        yield from runtime.check_most("ir", graph.ir, "IR version", way)
    yield from _check_operators(graph, runtime)
    for name in sorted(graph.types & set(runtime.facts.get("types", ()))):
        yield Finding("impossible", "types", f"{runtime.name} has no type {name}: export FLOAT or FLOAT16 instead")
    for name, dtype in graph.values.items():
        if dtype and dtype not in runtime.table.get("io_types", (dtype,)):
            text = f"JavaScript has no tensor of type {dtype} for '{name}': add a Cast to FLOAT or FLOAT16"
            yield Finding("impossible", "types", text)
    if graph.external:
        fetch = "; the page fetches both and names the second in externalData" if "io_types" in runtime.table else ""
        text = f"the weights lie in '{graph.external}': ship it in the same folder{fetch}"
        yield Finding("note", "external data", text)


def _check_operators(graph: OnnxFacts, runtime: Runtime) -> Iterator[Finding]:
    """Yield the operators that the runtime lacks."""
    table, own, register = runtime.table, _order(runtime.version), "register its library in the session"
    for domain, operator in sorted(graph.operators):
        # The first version with the operator; empty if none has it.
        first = runtime.version
        if domain == "":
            first = table.get("missing", {}).get(operator, first)
        elif domain == CONTRIB and own >= _order(table["contrib_from"]):
            first = table["contrib"].get(operator, "")
        elif domain not in table.get("domains", (domain,)):
            first = ""
        if first and own >= _order(first):
            continue
        # Not every version of ONNX Runtime was released for browsers.
        newer = next((v for v in table["versions"] if first and _order(v) >= _order(first)), "")
        way = (
            f"use {runtime.family}-{newer} or newer"
            if newer
            else "express it in other operators with ModelSpec.translations"
        )
        if domain == CONTRIB:
            way = "save the file without ONNX Runtime's fusions, as -t onnx does" + (f", or {way}" if newer else "")
        elif domain and table.get("custom_operators"):
            way = register
        name = f"{domain}.{operator}" if domain else operator
        text = f"{runtime.name} has no operator '{name}': {way}"
        yield Finding("note" if way == register else "impossible", "operators", text)


def check_package(path: Path, runtime: Runtime) -> Iterator[Finding]:
    """Yield what the tables say of a Core ML package. Field numbers: Model.proto of coremltools."""
    model = next(iter(sorted(path.rglob("*.mlmodel"))), None)
    if model is None:
        raise ModelError(f"'{path}' has no .mlmodel file. Export it again")
    walk = Walk(model.read_bytes())
    specification, names, is_program = 0, [], False
    try:
        for number, wire, start, end in walk.split(0, len(walk.data)):
            if number == 1:
                specification = walk.numbers(wire, start, end)[-1]
            is_program |= number == 502
            # Of the description, inputs and outputs; of each, its name.
            for side, _, first, last in walk.split(start, end) if number == 2 else ():
                fields = walk.split(first, last) if side in (1, 10) else ()
                names += [bytes(walk.data[a:b]).decode(errors="replace") for n, _, a, b in fields if n == 1]
    except RefusalError as error:
        raise ModelError(f"'{model}' {error}. Export it again") from error
    way = f"convert it with minimum_deployment_target=coremltools.target.{runtime.version.replace('ios', 'iOS')}"
    yield from runtime.check_most("specification", specification, "specification version", way)
    for name in names if is_program else ():
        if not re.fullmatch(runtime.table["names"], name):
            identifier = re.sub(r"^(?=\d)|[^A-Za-z0-9_]", "_", name)
            yield Finding("impossible", "names", f"Core ML takes no name '{name}': rename it, to '{identifier}' or so")


def check_flatbuffer(path: Path, runtime: Runtime) -> Iterator[Finding]:
    """Yield whether a .pte or .tflite file lacks the identifier that the runtime reads in its bytes 4 to 8."""
    with path.open("rb") as stream:
        identifier = stream.read(8)[4:].decode("ascii", errors="replace")
    if identifier != runtime.table["identifier"]:
        text = f"the file has the identifier '{identifier}', and {runtime.name} reads '{runtime.table['identifier']}'"
        yield Finding("impossible", "identifier", f"{text}: export it again, and copy it as binary")


def check_openvino(path: Path, runtime: Runtime) -> Iterator[Finding]:
    """Yield what the tables say of an OpenVINO .xml file."""
    text = path.read_text(encoding="utf-8", errors="replace")
    root = re.search(r'<net\b[^>]*\bversion="(\d{1,9})"', text)
    if root is None:
        raise ModelError(f"'{path}' is not an OpenVINO file: it has no <net> with a version. Export it again")
    way = "convert the model again with openvino.convert_model of that version"
    if int(root[1]) not in runtime.table["openvino_ir"]:
        versions = " and ".join(map(str, runtime.table["openvino_ir"]))
        yield Finding("impossible", "IR version", f"{runtime.name} reads IR version {versions}, not {root[1]}: {way}")
    newest = max(map(int, re.findall(r'version="opset(\d{1,9})"', text)), default=0)
    yield from runtime.check_most("operation_set", newest, "operation set", way)
    if path.with_suffix(".bin").is_file():
        yield Finding("note", "external data", f"the weights lie in '{path.stem}.bin': ship it in the same folder")


def lines(predictions: Iterable[Prediction]) -> Iterator[str]:
    """Yield the lines that the command prints."""
    for prediction in predictions:
        for finding in prediction.findings:
            yield f"{prediction.runtime}: {finding.kind}: {finding.text}"
        if not prediction.findings:
            yield f"{prediction.runtime}: the tables have nothing against this file"
        if prediction.not_known:
            yield f"not known for {prediction.runtime}: {'; '.join(prediction.not_known)}"
    yield NOTE
