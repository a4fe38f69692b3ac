"""Safe reading of checkpoints: a file is hostile until proved otherwise.

Two formats are read, identified by content and never by name:

- safetensors: the library checks that the header is well formed and that the tensors fill the file without a gap or an
  overlap. edgekit adds limits on the header's size and on the number of tensors, and refuses duplicate names and
  fields.
- torch files: a zip archive around a pickle, and a pickle is a program. Before torch sees it, the archive must match
  what torch.save writes: every record STORED, one folder, unique names, nothing before or after it, records no larger
  together than the file, every CRC-32 right (torch does not check it: one flipped bit in ten loads silently). The
  pickle is read opcode by opcode without running it. Only the opcodes and globals of plain weights are allowed, by
  their exact names, and only tuples as deep as weights need (torch hashes a deeper tuple until the process dies). Then
  `torch.load(weights_only=True)` makes the tensors; it refuses sizes and offsets beyond a record.

These are allow-lists, since deny-lists fail: scanners have had dozens of bypasses (CVE-2025-1716,
CVE-2025-10155 to -10157), and `weights_only=True` itself has had two (CVE-2025-32434, CVE-2026-24747).

NaN and infinite weights are refused by name in both formats.
"""

from __future__ import annotations

import errno
import hashlib
import io
import pickle
import pickletools
import re
import stat
import zipfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from edgekit.errors import CheckpointError
from edgekit.model.sources import script
from edgekit.model.spec import ModelSpec
from edgekit.storage.files import aside, load_json

if TYPE_CHECKING:
    import torch

# Bytes; the largest model meant for an edge device is far below.
LARGEST_FILE = 4 << 30
# Bytes of a safetensors header; real ones are below 1 MiB.
LARGEST_HEADER = 16 << 20
# Bytes of data.pkl; real ones are below 1 MiB.
LARGEST_PICKLE = 16 << 20
MOST_TENSORS = 100_000
# The limit of torch itself.
MOST_DIMENSIONS = 64
# Of a pickle; real files have about 25 for each tensor.
MOST_OPCODES = 2_000_000
DEEPEST_TUPLE = 100
# Bytes of all tensors / bytes of the file: tied weights are fine, a bomb of views is not.
MOST_SHARING = 20
DEEPEST_WRAPPER = 4  # {"model": {"state_dict": ...}}

WRAPPERS = ("state_dict", "model_state_dict", "model", "module", "net", "network", "weights", "params")
AVERAGED = ("state_dict_ema", "model_ema", "ema_state_dict", "ema_model", "ema", "averaged_model")
"""Wrappers of weights that are an exponential moving average, as named by timm, YOLO and torch's own trainers."""
# Added by DataParallel and torch.compile.
PREFIXES = ("module.", "_orig_mod.")

_DTYPES = (
    *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "bool"),
    *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"),
)
_STORAGES = ("Double", "Float", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")
_GLOBALS = {
    "collections OrderedDict",
    "torch Size",
    "torch device",
    "torch._utils _rebuild_parameter",
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_tensor_v3",
    "torch.storage UntypedStorage",
    *(f"torch {name}Storage" for name in _STORAGES),
    *(f"torch {name}" for name in _DTYPES),
}
_OPCODES = {
    *("PROTO", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "EMPTY_TUPLE", "EMPTY_LIST", "EMPTY_DICT"),
    *("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "GLOBAL", "REDUCE", "BUILD"),
    *("BINPERSID", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINSTRING"),
    *("BINGET", "LONG_BINGET", "BINPUT", "LONG_BINPUT"),
}
_ADVICE = "save the module's state_dict() with torch.save or as safetensors"
_OLD = "is {}, an old format that can run code. Load it where you trust it and save it as safetensors"
# First bytes of files that are often mistaken for weights, and the message.
_STRANGERS = (
    (b"version https://git-lfs", "is a Git LFS pointer and not the file itself: run `git lfs pull`"),
    (b"\x80", _OLD.format("a bare pickle")),
    (b"\x89HDF", "is an HDF5 file: convert it to safetensors"),
    (b"GGUF", "is a GGUF file: convert it to safetensors"),
    (b"<", "is a web page or XML and not the file itself: download it again"),
)


def read_checkpoint(path: Path, ema: bool = False) -> dict[str, torch.Tensor]:
    """Read a file of weights without running any code in it.

    Wrappers (`state_dict`, `model`, ...) and the prefixes of DataParallel and torch.compile are removed. With `ema`,
    the weights are those of the file's moving average, which must exist.

    Returns:
        Contiguous CPU tensors by name, each with separate memory, in the file's order and dtypes.

    Raises:
        CheckpointError: If the file is missing, damaged, hostile, of another format, or holds NaN or infinite weights.
    """
    data = _content(path)
    try:
        content = _read_torch(data) if data.startswith(b"PK\x03\x04") else _read_safetensors(data)
        return _plain(_moving_average(content) if ema else content, len(data))
    except CheckpointError as error:
        raise CheckpointError(f"the checkpoint '{path}' {error}") from error.__cause__
    # The parsers may raise anything on hostile bytes; the user gets one sentence.
    except Exception as error:
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise CheckpointError(f"the checkpoint '{path}' is damaged ({why}). Get it again") from error


def fit_checkpoint(
    tensors: Mapping[str, torch.Tensor],
    expected: Mapping[str, tuple[int, ...]],
    *,
    origin: str = "the checkpoint",
) -> dict[str, torch.Tensor]:
    """Return the tensors that a model needs: exactly the expected names and shapes.

    Args:
        tensors: Result of `read_checkpoint`.
        expected: Shapes by name, for example of the module's `state_dict()`.
        origin: Name of the checkpoint in the error message.

    Raises:
        CheckpointError: With the first few names that are missing, unexpected or of another shape, and the number of
            others.
    """
    missing = [f"'{name}'" for name in expected if name not in tensors]
    unexpected = [f"'{name}'" for name in tensors if name not in expected]
    misfits = [
        f"'{name}' {list(tensors[name].shape)} instead of {list(shape)}"
        for name, shape in expected.items()
        if name in tensors and tuple(tensors[name].shape) != tuple(shape)
    ]
    differences = [("missing ", missing), ("unexpected ", unexpected), ("other shapes: ", misfits)]
    if any(names for _, names in differences):
        what = "; ".join(label + _few(names) for label, names in differences if names)
        raise CheckpointError(f"{origin} is of another model ({what}). Name the model that it belongs to")
    return {name: tensors[name] for name in expected}


def write_checkpoint(path: Path, tensors: Mapping[str, torch.Tensor], infinite: Collection[str] = ()) -> None:
    """Write safetensors, sorted by name, contiguous, without metadata: the same weights always give the same bytes.

    A reader sees the old file or the new one, even after a crash. Tensors named in `infinite` may hold infinities.

    Raises:
        CheckpointError: If a weight is NaN or infinite.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    seen: set[int] = set()
    own = {name: _own(tensors[name].detach().cpu(), seen) for name in sorted(tensors)}
    for name, tensor in own.items():
        _finite(name, tensor, name in infinite)
    with aside(path) as temporary:
        try:
            save_file(own, temporary)
        except SafetensorError as error:
            # Its message ends with the system's number: "No space left on device (os error 28)".
            number = re.search(r"os error (\d+)", str(error))
            raise OSError(int(number[1]) if number else errno.EIO, str(error), str(path)) from error


def _content(path: Path) -> bytes:
    name = f"the checkpoint '{path}'"
    try:
        state = path.stat()
        if stat.S_ISDIR(state.st_mode):
            inside = next(
                (
                    f"'{path / file}'"
                    for file in sorted(
                        p.name for p in path.iterdir() if p.suffix in (".safetensors", ".pt", ".pth", ".bin")
                    )
                ),
                "the file of weights in it",
            )
            raise CheckpointError(f"{name} is a folder. Name {inside}")
        if not stat.S_ISREG(state.st_mode):
            raise CheckpointError(f"{name} is not a regular file. Copy it into one")
        if state.st_size > LARGEST_FILE:
            raise CheckpointError(f"{name} has {state.st_size} bytes, more than {LARGEST_FILE}. Save only the weights")
        data = path.read_bytes()
    except FileNotFoundError:
        raise CheckpointError(f"{name} does not exist. Check the path") from None
    # ValueError: a NUL in the name.
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{name} cannot be read ({error}). Check the path") from error
    if not data:
        raise CheckpointError(f"{name} is empty. Get it again")
    return data


def _read_torch(data: bytes) -> object:
    import torch

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        records = _records(archive, data)
        code = archive.read(records["data.pkl"])
        _check_pickle(code)
        if broken := archive.testzip():
            _refuse(f"is damaged in its record {broken!r}: get it again")
    if torch._C.PyTorchFileReader(io.BytesIO(data)).get_record("data.pkl") != code:
        _refuse(f"is two archives in one file, so that zip readers disagree on its contents: {_ADVICE}")
    try:
        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    # torch's own message advises to run the code.
    except pickle.UnpicklingError as error:
        _refuse(f"is not a regular file of weights: {_ADVICE}", error)


def _records(archive: zipfile.ZipFile, data: bytes) -> dict[str, zipfile.ZipInfo]:
    """Return the archive's records, by their names inside its single folder."""
    listed = archive.infolist()
    records = {record.filename.partition("/")[2]: record for record in listed}
    if data[-22:-18] != b"PK\x05\x06" or archive.comment or min((r.header_offset for r in listed), default=0):
        _refuse("is truncated or has bytes around its archive: get it again")
    if len(listed) > MOST_TENSORS:
        _refuse(f"has {len(listed)} records, more than {MOST_TENSORS}: {_ADVICE}")
    if len(records) != len(listed) or len({record.filename.partition("/")[0] for record in listed}) != 1:
        _refuse(f"is not a plain torch file (duplicate record names, or several folders): {_ADVICE}")
    if any(r.compress_type != zipfile.ZIP_STORED or r.file_size != r.compress_size or r.flag_bits & 1 for r in listed):
        _refuse(f"is compressed or encrypted, which torch.save never does: {_ADVICE}")
    if sum(record.file_size for record in listed) > len(data):
        _refuse(f"is a zip bomb (its records together are larger than the file): {_ADVICE}")
    if "constants.pkl" in records or any(name.startswith("code/") for name in records):
        _refuse(f"is a TorchScript archive, which is code: {_ADVICE}")
    if "data.pkl" not in records or records["data.pkl"].file_size > LARGEST_PICKLE:
        _refuse(f"is a zip file without a data.pkl of at most {LARGEST_PICKLE} bytes: {_ADVICE}")
    return records


def _check_pickle(code: bytes) -> None:
    """Check that a pickle holds only what plain weights need, without running it."""
    # Of nested tuples, for each value on the stack; None is a mark.
    depths: list[int | None] = []
    memo: dict[int, int | None] = {}
    end = 0
    for count, (opcode, argument, position) in enumerate(pickletools.genops(code)):
        if count > MOST_OPCODES:
            _refuse(f"has more than {MOST_OPCODES} pickle opcodes: {_ADVICE}")
        if opcode.name not in _OPCODES:
            _refuse(f"uses the pickle opcode {opcode.name}, which plain weights do not need: {_ADVICE}")
        if opcode.name == "PROTO" and argument != 2:
            _refuse(f"has the pickle protocol {argument}: {_ADVICE}")
        if opcode.name == "GLOBAL":
            name = str(argument)
            if name.startswith("torch ") and name.endswith("Storage") and name not in _GLOBALS:
                _refuse(f"has tensors of a kind that edgekit does not read ('{name}'). Convert them to float32")
            if name not in _GLOBALS:
                _refuse(f"would run code (global '{name.replace(' ', '.')}'): {_ADVICE}")
        _step(opcode, argument, depths, memo)
        end = (position or 0) + 1
    # The last opcode is always STOP, one byte.
    if end != len(code):
        _refuse("has bytes after the end of its pickle. Get it again")


def _step(opcode: pickletools.OpcodeInfo, argument: Any, depths: list[int | None], memo: dict[int, int | None]) -> None:
    """Apply one opcode to the stack of depths, using pickletools' description of its operands."""
    if opcode.name.endswith("PUT"):
        memo[argument] = depths[-1]
        return
    if opcode.name.endswith("GET"):
        depths.append(memo[argument])
        return
    shape: list[int | None] = []
    for kind in reversed(opcode.stack_before):
        if kind is pickletools.stackslice:
            while (value := depths.pop()) is not None:
                shape.append(value)
        # The mark was removed with the slice above it.
        elif kind is not pickletools.markobject:
            shape.append(depths.pop())
    for kind in opcode.stack_after:
        depth = 1 + max((value or 0 for value in shape), default=0)
        if depth > DEEPEST_TUPLE:
            _refuse(f"has tuples nested deeper than {DEEPEST_TUPLE}: {_ADVICE}")
        depths.append(None if kind is pickletools.markobject else depth)


def _read_safetensors(data: bytes) -> object:
    from safetensors.torch import load

    if data[8:9] != b"{":
        if data[257:262] == b"ustar":
            _refuse(_OLD.format("a tar archive"))
        unknown = "is neither safetensors nor a torch zip file, or it is truncated. Save the weights as safetensors"
        _refuse(next((why for start, why in _STRANGERS if data.startswith(start)), unknown))
    length = int.from_bytes(data[:8], "little")
    if length > LARGEST_HEADER or length > len(data) - 8:
        _refuse(f"is truncated or has too large a header ({length} bytes, limit {LARGEST_HEADER}). Get it again")
    tensors = load(data)
    header = load_json(data[8 : 8 + length], object_pairs_hook=_unique)
    header.pop("__metadata__", None)
    if len(header) > MOST_TENSORS:
        _refuse(f"has {len(header)} tensors, more than {MOST_TENSORS}. Save only the weights")
    if extra := next((name for name, entry in header.items() if len(entry) != 3), None):
        _refuse(f"has a damaged header at tensor {extra!r}. Get it again")
    return tensors


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        _refuse("has a duplicate name in its header. Get it again")
    return entries


def _moving_average(content: object) -> object:
    """Return the moving average of a file's weights."""
    state = content if isinstance(content, dict) else {}
    outers = (state, *(state[name] for name in WRAPPERS if isinstance(state.get(name), dict)))
    inner = [outer[name] for outer in outers for name in AVERAGED if isinstance(outer.get(name), dict)]
    if inner:
        return inner[0]
    keys = _few([repr(name) for name in state]) or "nothing"
    return _refuse(f"holds no averaged weights ({', '.join(AVERAGED)}) but {keys}. Leave out --ema")


def _plain(content: object, size: int) -> dict[str, torch.Tensor]:
    """Return a file's single state dict, unwrapped, each tensor contiguous, finite and with separate memory."""
    state = _unwrap(content)
    if sum(tensor.numel() * tensor.element_size() for tensor in state.values()) > MOST_SHARING * size:
        _refuse(f"unpacks to more than {MOST_SHARING} times its size. Save a plain state_dict()")
    while prefix := next((p for p in PREFIXES if all(name.startswith(p) for name in state)), ""):
        state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    for name, tensor in state.items():
        # Refuse tensors with anything but values.
        if str(tensor.dtype).removeprefix("torch.") not in _DTYPES:
            _refuse(f"has tensor {name!r} of {tensor.dtype}, which edgekit does not read. Convert it to float32")
        if tensor.dim() > MOST_DIMENSIONS or tensor._backward_hooks or tensor.is_neg() or tensor.is_conj():
            _refuse(f"describes a tensor in a way that plain weights do not need ({name!r}): {_ADVICE}")
        _finite(name, tensor)
    seen: set[int] = set()
    return {name: _own(tensor.detach(), seen) for name, tensor in state.items()}


def _own(tensor: torch.Tensor, seen: set[int]) -> torch.Tensor:
    """Return the tensor if it is contiguous and alone fills memory that no other tensor uses, else a copy."""
    memory = tensor.untyped_storage()
    alone = memory.nbytes() == tensor.numel() * tensor.element_size() and memory.data_ptr() not in seen
    if not alone or not tensor.is_contiguous():
        return tensor.contiguous().clone()
    seen.add(memory.data_ptr())
    return tensor


def _unwrap(content: object, depth: int = 0) -> dict[str, torch.Tensor]:
    import torch

    if not isinstance(content, dict):
        _refuse(f"holds no state dict but a {type(content).__name__}. Save the module's state_dict()")
    if any(type(name) not in (str, int) for name in content):
        _refuse(f"has a dictionary key that is neither text nor a number: {_ADVICE}")
    # Attributes could shadow a dictionary's methods.
    if set(getattr(content, "__dict__", ())) - {"_metadata"}:
        _refuse(f"sets attributes that plain weights do not have: {_ADVICE}")
    tensors = {str(name): value for name, value in content.items() if isinstance(value, torch.Tensor)}
    if tensors:
        return tensors
    inner = next((content[name] for name in WRAPPERS if isinstance(content.get(name), dict)), None)
    if inner is None or depth == DEEPEST_WRAPPER:
        keys = _few([repr(name) for name in content]) or "nothing"
        _refuse(f"holds no state dict but {keys}. Save only the module's state_dict()")
    return _unwrap(inner, depth + 1)


def _finite(name: str, tensor: torch.Tensor, infinite: bool = False) -> None:
    if tensor.is_floating_point():
        # isfinite does not support float8; aminmax takes one pass and no mask.
        wide = tensor.float() if tensor.element_size() == 1 else tensor
        if wide.numel() == 0 or all(end.isfinite() for end in wide.aminmax()):
            return
        bad = int((wide.isnan() if infinite else ~wide.isfinite()).sum())
        if bad:
            _refuse(f"has NaN or infinite weights ({bad} of {tensor.numel()} in '{name}'). Train or convert it again")


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _refuse(why: str, cause: Exception | None = None) -> NoReturn:
    raise CheckpointError(why) from cause


def weights_digest(spec: ModelSpec) -> str:
    """Return the sha256 of a module's weights, whatever their file; it identifies the model of a recorded reference."""
    hashed = hashlib.sha256()
    tensors = {**spec.module.state_dict(), **dict(script.constants(spec.module))}
    for name, tensor in sorted(tensors.items()):
        array = tensor.detach().cpu().contiguous().numpy()
        hashed.update(f"{name} {array.dtype} {array.shape}\n".encode())
        hashed.update(array.reshape(-1).view(np.uint8))
    return hashed.hexdigest()


def with_weights(spec: ModelSpec, path: Path, ema: bool = False) -> ModelSpec:
    """Return a model with the weights of a file, under its own name and without a licence.

    A prefix shared by all names in only one of the file and the model is ignored. With `ema`, the weights are the
    file's averaged ones.

    Raises:
        CheckpointError: If the file cannot be used, or is of another model.
    """
    # Mean and deviation of images belong to the model, not to the file.
    own = getattr(spec.module, "edgekit_buffers", ())
    expected = {name: tensor for name, tensor in spec.module.state_dict().items() if name not in own}
    tensors = _rename(read_checkpoint(path, ema), list(expected))
    shapes = {name: tuple(tensor.shape) for name, tensor in expected.items()}
    fitting = fit_checkpoint(tensors, shapes, origin=f"the checkpoint '{path}', read as '{spec.name}',")
    filled = {name: tensor.to(expected[name].dtype) for name, tensor in fitting.items()}
    spec.module.load_state_dict({**spec.module.state_dict(), **filled})
    return _name_spec(spec, path)


def _rename(tensors: Mapping[str, torch.Tensor], names: Sequence[str]) -> dict[str, torch.Tensor]:
    """Return tensors by the expected names if these differ only by a prefix of all names."""
    if set(tensors) == set(names):
        return dict(tensors)
    parts = names[0].split(".") if names else []
    for start in range(len(parts)):
        rest, prefix = ".".join(parts[start:]), "".join(f"{part}." for part in parts[:start])
        for old_prefix in (name.removesuffix(rest) for name in tensors if name.endswith(rest)):
            renamed = {f"{prefix}{name.removeprefix(old_prefix)}": tensor for name, tensor in tensors.items()}
            if set(renamed) == set(names):
                return renamed
    return dict(tensors)


def as_their_own(spec: ModelSpec, path: Path, own: ModelSpec) -> ModelSpec:
    """Return a checkpoint's model under its file's name without a licence, unless it has the preset's weights."""
    return spec if weights_digest(spec) == weights_digest(own) else _name_spec(spec, path)


def _name_spec(spec: ModelSpec, path: Path) -> ModelSpec:
    file = slug(path.stem)
    name = file if file.startswith(spec.name) else f"{spec.name}-{file or 'weights'}"
    return replace(spec, name=name, author="", licence="", trained_on="", reference=None)


def slug(text: str) -> str:
    """Return a text as a model's name: lower case, with dashes for all but letters, digits and dots."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")
