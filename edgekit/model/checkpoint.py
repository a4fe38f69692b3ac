"""Files people have -> tensors, safely: a checkpoint is hostile until proved otherwise.

Two formats are read, told apart by content and never by name:

- safetensors: the header is parsed here, strictly, before the library sees the file: limits on its size and on the
  number of tensors, known dtypes, offsets without a gap or an overlap, sizes that are shape x dtype, a total that is
  the file's size.
- torch files: zip archives only, checked by `pickled.py` record by record and opcode by opcode before
  `torch.load(weights_only=True)` sees the file.

Weights that are NaN or infinite are refused by name in both.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from edgekit.errors import CheckpointError
from edgekit.model import torch_archive
from edgekit.storage.files import write_bytes

if TYPE_CHECKING:
    import torch

LARGEST_FILE = 4 << 30  # bytes; the largest model meant for an edge device is far below
LARGEST_HEADER = 16 << 20  # bytes of a safetensors header; real ones are below 1 MiB
MOST_TENSORS = 100_000
MOST_SHARING = 20  # bytes of all tensors / bytes of the file: tied weights are fine, a bomb of views is not
DEEPEST_WRAPPER = 4  # {"model": {"state_dict": ...}}

WRAPPERS = ("state_dict", "model_state_dict", "model", "module", "net", "network", "weights", "params")
AVERAGED = ("state_dict_ema", "model_ema", "ema_state_dict", "ema_model", "ema", "averaged_model")
"""Wrappers of weights that are an exponential moving average, as timm, YOLO's and torch's own trainers name them."""
PREFIXES = ("module.", "_orig_mod.")  # DataParallel and torch.compile

_ITEMSIZE = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "BOOL": 1}
_ITEMSIZE |= {"I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1}
_OLD = "is {}, an old format that can run code: load it where you trust it and save it as safetensors"
_STRANGERS = (  # first bytes of files that are often mistaken for weights, and what to say
    (b"version https://git-lfs", "is a Git LFS pointer and not the file itself: run `git lfs pull`"),
    (b"\x80", _OLD.format("a bare pickle")),
    (b"\x89HDF", "is an HDF5 file: convert it to safetensors"),
    (b"GGUF", "is a GGUF file: convert it to safetensors"),
    (b"<", "is a web page or XML and not the file itself: download it again"),
)


def read_checkpoint(path: Path, ema: bool = False) -> dict[str, torch.Tensor]:
    """Read a file of weights without running anything that it says.

    Wrappers (`state_dict`, `model`, ...) and the prefixes of DataParallel and torch.compile are taken off. With `ema`
    the weights are those of the file's moving average, which must be there.

    Returns:
        Contiguous CPU tensors by name, each with its own memory, in the file's order and dtypes.

    Raises:
        CheckpointError: If the file is missing, damaged, hostile, of another format, or holds NaN or infinite weights.
    """
    data = _content(path)
    try:
        found = _read_torch(data) if data.startswith(b"PK\x03\x04") else _read_safetensors(data)
        return _plain(_averaged(found) if ema else found, len(data))
    except CheckpointError as error:
        raise CheckpointError(f"the checkpoint '{path}' {error}") from error.__cause__
    except Exception as error:  # whatever two parsers make of hostile bytes, the user gets one sentence
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise CheckpointError(f"the checkpoint '{path}' is damaged ({why}): get it again") from error


def fit_checkpoint(
    tensors: Mapping[str, torch.Tensor],
    expected: Mapping[str, tuple[int, ...]],
    *,
    ignore: Sequence[str] = (),
    origin: str = "the checkpoint",
) -> dict[str, torch.Tensor]:
    """Choose what a model needs: exactly the expected names and shapes, but for prefixes that it ignores.

    Args:
        tensors: What `read` gave.
        expected: Shapes by name, for example of the module's `state_dict()`.
        ignore: Prefixes of names that may be there and are left out (`base_model.`).
        origin: What to call the checkpoint in the error's sentence.

    Raises:
        CheckpointError: With the first few names that are missing, unexpected or of another shape, and how many more.
    """
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith(tuple(ignore))}
    missing = [f"'{name}'" for name in expected if name not in kept]
    unexpected = [f"'{name}'" for name in kept if name not in expected]
    misfits = [
        f"'{name}' {list(kept[name].shape)} instead of {list(shape)}"
        for name, shape in expected.items()
        if name in kept and tuple(kept[name].shape) != tuple(shape)
    ]
    differences = [("missing ", missing), ("unexpected ", unexpected), ("other shapes: ", misfits)]
    if any(names for _, names in differences):
        what = "; ".join(label + _few(names) for label, names in differences if names)
        raise CheckpointError(f"{origin} is of another model ({what}): name the model that it was trained as")
    return {name: kept[name] for name in expected}


def write_checkpoint(path: Path, tensors: Mapping[str, torch.Tensor], infinite: Collection[str] = ()) -> None:
    """Write safetensors: sorted by name, contiguous, no metadata, so the same weights always give the same bytes.

    A reader sees the old file or the new one, also after a crash. Tensors named in `infinite` may hold infinities.

    Raises:
        CheckpointError: If a weight is NaN or infinite.
    """
    from safetensors.torch import save

    own = {name: tensors[name].detach().cpu().contiguous().clone() for name in sorted(tensors)}
    for name, tensor in own.items():
        _finite(name, tensor, name in infinite)
    write_bytes(path, save(own))


def _content(path: Path) -> bytes:
    name = f"the checkpoint '{path}'"
    try:
        state = path.stat()
        if stat.S_ISDIR(state.st_mode):
            inside = next((f"'{path / file}'" for file in _usual(path)), "the file of weights in it")
            raise CheckpointError(f"{name} is a folder: name {inside}")
        if not stat.S_ISREG(state.st_mode):
            raise CheckpointError(f"{name} is not a regular file: copy it into one")
        if state.st_size > LARGEST_FILE:
            raise CheckpointError(f"{name} has {state.st_size} bytes, more than {LARGEST_FILE}: save the weights alone")
        data = path.read_bytes()
    except FileNotFoundError:
        raise CheckpointError(f"{name} does not exist: check the path") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise CheckpointError(f"{name} cannot be read ({error}): check the path") from error
    if not data:
        raise CheckpointError(f"{name} is empty: get it again")
    return data


def _usual(folder: Path) -> Iterable[str]:
    return sorted(p.name for p in folder.iterdir() if p.suffix in (".safetensors", ".pt", ".pth", ".bin"))


def _read_torch(data: bytes) -> object:
    import io

    import torch

    torch_archive.check_archive(data)
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


def _read_safetensors(data: bytes) -> object:
    from safetensors.torch import load

    if data[8:9] != b"{":
        _refuse(next((why for start, why in _STRANGERS if data.startswith(start)), _stranger(data)))
    length = int.from_bytes(data[:8], "little")
    if length > LARGEST_HEADER or length > len(data) - 8:
        _refuse(f"is truncated or has too large a header ({length} bytes, limit {LARGEST_HEADER}): get it again")
    header = json.loads(data[8 : 8 + length], object_pairs_hook=_unique)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        _refuse("has metadata that are not text: get it again")
    if len(header) > MOST_TENSORS:
        _refuse(f"has {len(header)} tensors, more than {MOST_TENSORS}: save the weights alone")
    end = 0
    for start, stop, name in sorted(_span(name, entry) for name, entry in header.items()):
        if start != end:
            _refuse(f"has a gap or an overlap before tensor {name!r}: get it again")
        end = stop
    if 8 + length + end != len(data):
        _refuse(f"is truncated or too long ({len(data)} bytes instead of {8 + length + end}): get it again")
    return load(data)


def _stranger(data: bytes) -> str:
    if data[257:262] == b"ustar":
        return _OLD.format("a tar archive")
    return "is neither safetensors nor a torch zip file, or it is truncated: save the weights as safetensors"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        _refuse("names something twice in its header: get it again")
    return made


def _span(name: str, entry: object) -> tuple[int, int, str]:
    """Start and end of one tensor in the data section, if its entry holds together."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        _refuse(f"has a damaged header at tensor {name!r}: get it again")
    size = _ITEMSIZE.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
    if size is None:
        _refuse(f"has tensor {name!r} of dtype {entry['dtype']!r}, which edgekit does not read: convert it to F32")
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not torch_archive.naturals(shape) or not torch_archive.naturals(offsets) or len(offsets) != 2:
        _refuse(f"has a damaged shape or offsets at tensor {name!r}: get it again")
    if offsets[1] - offsets[0] != size * prod(shape):
        _refuse(f"has tensor {name!r} whose size is not its shape times its dtype: get it again")
    return offsets[0], offsets[1], name


def _averaged(found: object) -> object:
    """What a file holds as its moving average."""
    held = found if isinstance(found, dict) else {}
    outers = (held, *(held[name] for name in WRAPPERS if isinstance(held.get(name), dict)))
    inner = [outer[name] for outer in outers for name in AVERAGED if isinstance(outer.get(name), dict)]
    if inner:
        return inner[0]
    keys = _few([repr(name) for name in held]) or "nothing"
    return _refuse(f"holds no averaged weights ({', '.join(AVERAGED)}) but {keys}: leave out --ema")


def _plain(found: object, size: int) -> dict[str, torch.Tensor]:
    """The one state dict in what a file held, unwrapped, each tensor contiguous, finite and with its own memory."""
    state = _unwrapped(found)
    if sum(tensor.numel() * tensor.element_size() for tensor in state.values()) > MOST_SHARING * size:
        _refuse(f"unpacks to more than {MOST_SHARING} times its size: save a plain state_dict()")
    while prefix := next((p for p in PREFIXES if all(name.startswith(p) for name in state)), ""):
        state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    for name, tensor in state.items():
        _finite(name, tensor)
    taken: set[int] = set()
    return {name: _own(tensor.detach(), taken) for name, tensor in state.items()}


def _own(tensor: torch.Tensor, taken: set[int]) -> torch.Tensor:
    """The tensor itself where it is contiguous and alone fills memory that none took before, else a copy."""
    memory = tensor.untyped_storage()
    alone = memory.nbytes() == tensor.numel() * tensor.element_size() and memory.data_ptr() not in taken
    if not alone or not tensor.is_contiguous():
        return tensor.contiguous().clone()
    taken.add(memory.data_ptr())
    return tensor


def _unwrapped(found: object, depth: int = 0) -> dict[str, torch.Tensor]:
    import torch

    if not isinstance(found, dict):
        _refuse(f"holds no state dict but a {type(found).__name__}: save the module's state_dict()")
    tensors = {str(name): value for name, value in found.items() if isinstance(value, torch.Tensor)}
    if tensors:
        return tensors
    inner = next((found[name] for name in WRAPPERS if isinstance(found.get(name), dict)), None)
    if inner is None or depth == DEEPEST_WRAPPER:
        keys = _few([repr(name) for name in found]) or "nothing"
        _refuse(f"holds no state dict but {keys}: save the module's state_dict() alone")
    return _unwrapped(inner, depth + 1)


def _finite(name: str, tensor: torch.Tensor, infinite: bool = False) -> None:
    if tensor.is_floating_point():
        wide = tensor.float() if tensor.element_size() == 1 else tensor  # isfinite does not know float8
        bad = int((wide.isnan() if infinite else ~wide.isfinite()).sum())
        if bad:
            _refuse(f"has NaN or infinite weights ({bad} of {tensor.numel()} in '{name}'): train or convert it again")


def _few(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _refuse(why: str) -> NoReturn:
    raise CheckpointError(why)
