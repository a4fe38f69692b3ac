"""A torch file is a zip archive around a pickle, and a pickle is a program: this file checks both, and runs neither.

The archive: every record STORED as torch.save stores it, one folder, no two of one name, nothing before or behind it,
no larger together than the file, every CRC-32 right (torch does not check it: one flipped bit in ten loads quietly).
The pickle is run symbolically: a few opcodes, a few globals by their exact names, nothing imported and nothing called;
each tensor must lie inside a storage, and each storage must have exactly the size of its record.

Allow-lists throughout, since lists of what is forbidden lose: scanners have had dozens of bypasses
(CVE-2025-1716, CVE-2025-10155 to -10157), and `weights_only=True` itself has had two (CVE-2025-32434, CVE-2026-24747).
"""

from __future__ import annotations

import io
import pickletools
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, NoReturn, TypeGuard

from edgekit.errors import CheckpointError

LARGEST_PICKLE = 16 << 20  # bytes of data.pkl; real ones are below 1 MiB
MOST_RECORDS = 100_000
MOST_OPCODES = 2_000_000  # real files have about 25 for each tensor
MOST_DIMENSIONS = 64  # what torch itself allows

_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "bool": 1}
_BYTES |= {"int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1}
_TYPED = {"Double": 8, "Float": 4, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2, "Char": 1, "Byte": 1}
_TYPED |= {"Bool": 1}
_DTYPES = {f"torch {name}": size for name, size in _BYTES.items()}
_STORAGES = {f"torch {name}Storage": size for name, size in _TYPED.items()} | {"torch.storage UntypedStorage": 1}
_ADVICE = "save the module's state_dict() with torch.save or as safetensors"


def check_archive(data: bytes) -> None:
    """Check the bytes of a torch file.

    Raises:
        CheckpointError: At the first thing that a plain file of weights does not have; the message goes on from
            "the checkpoint 'x.pt' ...".
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        records = _records(archive, data)
        code = archive.read(records["data.pkl"])
        _Machine({name: record.file_size for name, record in records.items()}).run(code)
        if broken := archive.testzip():
            _refuse(f"is damaged in its record {broken!r}: get it again")
    _same_for_torch(data, code)


def naturals(value: object) -> TypeGuard[list[int] | tuple[int, ...]]:
    """Whether something is a short list or tuple of integers in [0, 2^63), as sizes, strides and offsets are."""
    if not isinstance(value, list | tuple) or len(value) > MOST_DIMENSIONS:
        return False
    return all(type(i) is int and 0 <= i < 1 << 63 for i in value)


def _records(archive: zipfile.ZipFile, data: bytes) -> dict[str, zipfile.ZipInfo]:
    """The archive's records, by their names inside its one folder."""
    listed = archive.infolist()
    records = {record.filename.partition("/")[2]: record for record in listed}
    if data[-22:-18] != b"PK\x05\x06" or archive.comment or min((r.header_offset for r in listed), default=0):
        _refuse("is truncated or has bytes around its archive: get it again")
    if len(listed) > MOST_RECORDS:
        _refuse(f"has {len(listed)} records, more than {MOST_RECORDS}: {_ADVICE}")
    if len(records) != len(listed) or len({record.filename.partition("/")[0] for record in listed}) != 1:
        _refuse(f"is no plain torch file, since two records have one name or there are several folders: {_ADVICE}")
    if any(r.compress_type != zipfile.ZIP_STORED or r.file_size != r.compress_size or r.flag_bits & 1 for r in listed):
        _refuse(f"is compressed or encrypted, which torch.save never does, and may unpack to anything: {_ADVICE}")
    if sum(record.file_size for record in listed) > len(data):
        _refuse(f"is a zip bomb, since its records are together larger than the file: {_ADVICE}")
    if "constants.pkl" in records or any(name.startswith("code/") for name in records):
        _refuse(f"is a TorchScript archive, which is code: {_ADVICE}")
    if "data.pkl" not in records or records["data.pkl"].file_size > LARGEST_PICKLE:
        _refuse(f"is a zip file without a data.pkl of at most {LARGEST_PICKLE} bytes: {_ADVICE}")
    return records


def _same_for_torch(data: bytes, code: bytes) -> None:
    # Two readers of zip files can be made to see two archives in one file.
    import torch

    if torch._C.PyTorchFileReader(io.BytesIO(data)).get_record("data.pkl") != code:
        _refuse(f"is two archives in one file: {_ADVICE}")


@dataclass(frozen=True)
class _Global:
    name: str


@dataclass(frozen=True)
class _Storage:
    size: int  # bytes
    itemsize: int


@dataclass(frozen=True)
class _Made:
    """What a call would give: a tensor that was found inside its storage, a device, a size."""

    name: str


class _Machine:
    """The symbolic run: plain containers and descriptions only."""

    def __init__(self, sizes: Mapping[str, int]):
        self.sizes = sizes
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def run(self, code: bytes) -> None:
        end = 0
        for count, (opcode, argument, position) in enumerate(pickletools.genops(code)):
            if count > MOST_OPCODES:
                _refuse(f"has more than {MOST_OPCODES} pickle opcodes: {_ADVICE}")
            if opcode.name not in _STEPS:
                _refuse(f"uses the pickle opcode {opcode.name}, which plain weights do not need: {_ADVICE}")
            _STEPS[opcode.name](self, argument)
            end = (position or 0) + 1
        if end != len(code):  # the last opcode is always STOP, one byte
            _refuse("has bytes behind the end of its pickle: get it again")

    def push(self, value: object) -> None:
        self.stack.append(value)

    def pop(self, count: int) -> list[Any]:
        """Take the last `count` values, oldest first."""
        if len(self.stack) < count:
            _refuse("has a pickle that takes more than it made: get it again")
        taken = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return taken

    def mark(self) -> None:
        self.marks.append(self.stack)
        self.stack = []

    def group(self) -> list[Any]:
        """Take everything since the last mark."""
        items = self.stack
        self.stack = self.marks.pop()
        return items

    def top(self, kind: type) -> Any:
        if not self.stack or type(self.stack[-1]) is not kind:
            _refuse(f"changes something other than a {kind.__name__} in its pickle: {_ADVICE}")
        return self.stack[-1]

    def put(self, index: int) -> None:
        [self.memo[index]] = self.stack[-1:]

    def set_items(self, items: list[Any]) -> None:
        target = self.top(dict)
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) not in (str, int):
                _refuse(f"has a dictionary key that is neither text nor a number: {_ADVICE}")
            target[key] = value

    def find(self, name: str) -> None:
        if name.startswith("torch ") and name.endswith("Storage") and name not in _STORAGES:
            _refuse(f"has tensors of a kind that edgekit does not read ('{name}'): convert them to float32")
        if name not in _CALLS and name not in _DTYPES and name not in _STORAGES:
            _refuse(f"wants to run code (global '{name.replace(' ', '.')}'): {_ADVICE}")
        self.push(_Global(name))

    def call(self) -> None:
        function, arguments = self.pop(2)
        if not isinstance(function, _Global) or function.name not in _CALLS or type(arguments) is not tuple:
            _refuse(f"wants to call something that plain weights do not need ({_told(function)}): {_ADVICE}")
        self.push(_CALLS[function.name](arguments))

    def build(self) -> None:
        """Attributes of a state dict: `_metadata` holds the versions of its modules and is all there may be."""
        [state] = self.pop(1)
        self.top(dict)
        if type(state) is not dict or set(state) - {"_metadata"} or type(state.get("_metadata", {})) is not dict:
            _refuse(f"sets attributes that plain weights do not have: {_ADVICE}")

    def storage(self) -> None:
        [described] = self.pop(1)
        if type(described) is not tuple or len(described) != 5 or described[0] != "storage":
            _refuse(f"refers to something that is no storage: {_ADVICE}")
        _, kind, key, place, count = described
        itemsize = _STORAGES.get(kind.name, 0) if isinstance(kind, _Global) else 0
        if not itemsize or type(key) is not str or type(place) is not str or not naturals([count]):
            _refuse(f"describes a storage of an unknown kind: {_ADVICE}")
        if self.sizes.get(f"data/{key}") != count * itemsize:
            _refuse(f"has a storage {key!r} whose size is not that of its record: get it again")
        self.push(_Storage(count * itemsize, itemsize))


def _ordered_dict(arguments: tuple[Any, ...]) -> object:
    if arguments:
        _refuse(f"makes a dictionary out of arguments: {_ADVICE}")
    return {}


def _tensor_of_dtype(arguments: tuple[Any, ...]) -> object:
    """A tensor as below with its dtype behind, over an untyped storage."""
    *plain, dtype = arguments
    itemsize = _DTYPES.get(dtype.name) if isinstance(dtype, _Global) else None
    if itemsize is None or not plain or not isinstance(plain[0], _Storage):
        _refuse(f"describes a tensor in a way that plain weights do not need: {_ADVICE}")
    return _tensor((_Storage(plain[0].size, itemsize), *plain[1:]))


def _tensor(arguments: tuple[Any, ...]) -> object:
    """(storage, offset, sizes, strides, requires_grad, hooks); offset and strides in elements."""
    if len(arguments) != 6 or not isinstance(arguments[0], _Storage):
        _refuse(f"describes a tensor in a way that plain weights do not need: {_ADVICE}")
    storage, offset, sizes, strides, grad, hooks = arguments
    itemsize = storage.itemsize
    plain = naturals([offset]) and naturals(sizes) and naturals(strides) and len(sizes) == len(strides)
    if not plain or type(grad) is not bool or hooks != {}:
        _refuse(f"describes a tensor in a way that plain weights do not need: {_ADVICE}")
    last = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True)) + 1
    count = prod(sizes)
    if count and (last * itemsize > storage.size or count * itemsize > storage.size):
        _refuse("has a tensor that reaches beyond its storage: get it again")
    return _Made("tensor")


def _parameter(arguments: tuple[Any, ...]) -> object:
    tensor, grad, hooks = arguments
    if tensor != _Made("tensor") or type(grad) is not bool or hooks != {}:
        _refuse(f"describes a parameter in a way that plain weights do not need: {_ADVICE}")
    return tensor


def _device(arguments: tuple[Any, ...]) -> object:
    if not arguments or type(arguments[0]) is not str or not naturals(arguments[1:]):
        _refuse(f"describes a device in a way that plain weights do not need: {_ADVICE}")
    return _Made("device")


def _size(arguments: tuple[Any, ...]) -> object:
    if len(arguments) != 1 or not naturals(arguments[0]):
        _refuse(f"describes a size in a way that plain weights do not need: {_ADVICE}")
    return _Made("size")


_CALLS: dict[str, Callable[[tuple[Any, ...]], object]] = {
    "collections OrderedDict": _ordered_dict,
    "torch._utils _rebuild_tensor_v2": _tensor,
    "torch._utils _rebuild_tensor_v3": _tensor_of_dtype,
    "torch._utils _rebuild_parameter": _parameter,
    "torch device": _device,
    "torch Size": _size,
}

_STEPS: dict[str, Callable[[_Machine, Any], object]] = {
    "PROTO": lambda m, version: None if version == 2 else _refuse(f"is of pickle protocol {version}: {_ADVICE}"),
    "STOP": lambda m, _: m.pop(1),
    "MARK": lambda m, _: m.mark(),
    "NONE": lambda m, _: m.push(None),
    "NEWTRUE": lambda m, _: m.push(True),
    "NEWFALSE": lambda m, _: m.push(False),
    "EMPTY_TUPLE": lambda m, _: m.push(()),
    "EMPTY_LIST": lambda m, _: m.push([]),
    "EMPTY_DICT": lambda m, _: m.push({}),
    "TUPLE": lambda m, _: m.push(tuple(m.group())),
    "TUPLE1": lambda m, _: m.push(tuple(m.pop(1))),
    "TUPLE2": lambda m, _: m.push(tuple(m.pop(2))),
    "TUPLE3": lambda m, _: m.push(tuple(m.pop(3))),
    "APPEND": lambda m, _: (lambda item: m.top(list).extend(item))(m.pop(1)),
    "APPENDS": lambda m, _: (lambda items: m.top(list).extend(items))(m.group()),
    "SETITEM": lambda m, _: m.set_items(m.pop(2)),
    "SETITEMS": lambda m, _: m.set_items(m.group()),
    "GLOBAL": lambda m, name: m.find(name),
    "REDUCE": lambda m, _: m.call(),
    "BUILD": lambda m, _: m.build(),
    "BINPERSID": lambda m, _: m.storage(),
}
_STEPS |= dict.fromkeys(
    ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINSTRING"), lambda m, v: m.push(v)
)
_STEPS |= dict.fromkeys(("BINGET", "LONG_BINGET"), lambda m, index: m.push(m.memo[index]))
_STEPS |= dict.fromkeys(("BINPUT", "LONG_BINPUT"), lambda m, index: m.put(index))


def _told(thing: object) -> str:
    return f"'{thing.name}'" if isinstance(thing, _Global | _Made) else type(thing).__name__


def _refuse(why: str) -> NoReturn:
    raise CheckpointError(why)
