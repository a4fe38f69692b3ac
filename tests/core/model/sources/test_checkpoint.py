"""Benign files give back their tensors; hostile or damaged ones give one sentence each, and run nothing."""

from __future__ import annotations

import json
import struct
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save, save_file
from torch import nn

from edgekit.errors import CheckpointError
from edgekit.model.sources import checkpoint

Header = Mapping[str, Any]


def modules() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    return {
        "mlp": nn.Sequential(nn.Linear(5, 7), nn.GELU(), nn.Linear(7, 2, bias=False)),
        "convolutions": nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ConvTranspose2d(4, 2, 2)),
        "attention": nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        "recurrent": nn.LSTM(3, 4, num_layers=2),
        "embedding": nn.Embedding(11, 3),
    }


def same(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name].float(), tensor.detach().float()), name
        assert found[name].is_contiguous()


@pytest.mark.parametrize("name", sorted(modules()))
@pytest.mark.parametrize("wrap", ["plain", "trainer", "parallel", "nested"])
def test_torch_files_of_several_modules(tmp_path: Path, name: str, wrap: str) -> None:
    module = modules()[name]
    state = module.state_dict()
    optimizer = torch.optim.AdamW(module.parameters())
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    wrapped: dict[str, object] = {
        "plain": state,
        "trainer": {"epoch": 3, "lr": 1e-3, "state_dict": state, "optimizer": optimizer.state_dict(), "best": None},
        "parallel": OrderedDict((f"module._orig_mod.{key}", value) for key, value in state.items()),
        "nested": {"model": {"state_dict": state}, "args": [1, (2, 3), True, "x", torch.Size([4]), torch.float32]},
    }
    torch.save(wrapped[wrap], tmp_path / "x.bin")
    same(checkpoint.read_checkpoint(tmp_path / "x.bin"), state)


@pytest.mark.parametrize(
    "dtype", ["float64", "bfloat16", "float16", "float8_e4m3fn", "int64", "uint16", "uint8", "bool"]
)
def test_dtypes_in_both_formats(tmp_path: Path, dtype: str) -> None:
    state = {"x": torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))}
    torch.save(state, tmp_path / "x.pt")
    save_file(state, tmp_path / "x.safetensors")
    same(checkpoint.read_checkpoint(tmp_path / "x.pt"), state)
    same(checkpoint.read_checkpoint(tmp_path / "x.safetensors"), state)


def test_views_shared_storages_parameters_and_empty_tensors(tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    state = {"tied": base, "also": base, "transposed": base.t(), "row": base[1], "every": base[:, ::2]}
    state |= {"parameter": nn.Parameter(torch.ones(2)), "empty": torch.empty(0, 3), "scalar": torch.tensor(2.5)}
    torch.save(state, tmp_path / "x.pt")
    found = checkpoint.read_checkpoint(tmp_path / "x.pt")
    same(found, state)
    found["tied"].zero_()
    assert torch.equal(found["also"], base)


def test_no_warning_and_torch_files_are_told_by_content(tmp_path: Path) -> None:
    state = modules()["mlp"].state_dict()
    torch.save(state, tmp_path / "x.safetensors")
    save_file(state, tmp_path / "x.pt")
    same(checkpoint.read_checkpoint(tmp_path / "x.safetensors"), state)
    assert checkpoint.read_checkpoint(tmp_path / "x.pt").keys() == state.keys()


def test_write_is_deterministic_and_reads_back(tmp_path: Path) -> None:
    state = modules()["attention"].state_dict() | {"view": torch.arange(6.0).reshape(2, 3).t()}
    checkpoint.write_checkpoint(tmp_path / "a", state)
    checkpoint.write_checkpoint(tmp_path / "b", dict(reversed(state.items())))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert b"__metadata__" not in (tmp_path / "a").read_bytes()
    found = checkpoint.read_checkpoint(tmp_path / "a")
    assert all(torch.equal(found[name], tensor) for name, tensor in state.items())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


def test_write_refuses_what_read_would(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="NaN or infinite weights"):
        checkpoint.write_checkpoint(tmp_path / "a", {"x": torch.tensor([1.0, float("inf")])})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_weights_that_are_not_finite(tmp_path: Path, bad: float, dtype: torch.dtype) -> None:
    state = {"ok": torch.ones(2), "head.weight": torch.tensor([[1.0, bad]]).to(dtype)}
    torch.save(state, tmp_path / "x.pt")
    save_file(state, tmp_path / "x.safetensors")
    for name in ("x.pt", "x.safetensors"):
        refused(tmp_path / name, r"NaN or infinite weights \(1 of 2 in 'head.weight'\)")


def refused(path: Path, match: str) -> None:
    with pytest.raises(CheckpointError, match=match) as caught:
        checkpoint.read_checkpoint(path)
    text = str(caught.value)
    assert f"'{path}'" in text
    assert "\n" not in text
    assert len(text) < 500


def test_files_that_are_none(tmp_path: Path) -> None:
    refused(tmp_path / "nothing.pt", "does not exist")
    refused(tmp_path, "is a folder. Name the file of weights in it")
    (tmp_path / "model.safetensors").write_bytes(b"")
    refused(tmp_path, "is a folder. Name '.*model.safetensors'")
    refused(tmp_path / "model.safetensors", "is empty")
    with pytest.raises(CheckpointError, match="cannot be read"):
        checkpoint.read_checkpoint(Path("a\0b"))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    refused(tmp_path / "loop", "cannot be read")
    refused(Path("/dev/zero"), "not a regular file")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "Git LFS"),
        (b"<!DOCTYPE html><html>not found</html>", "web page"),
        (b"\x89HDF\r\n\x1a\n" + bytes(100), "HDF5"),
        (b"GGUF\x03\0\0\0" + bytes(100), "GGUF"),
        (b"\0" * 257 + b"ustar\x0000" + bytes(500), "tar archive"),
        (b"{}", "neither safetensors"),
        (b"PK\x03\x04", "damaged"),
        (bytes(9), "neither safetensors"),
        (b"\x80\x04\x95" + bytes(60), "bare pickle"),
    ],
)
def test_files_of_other_formats(tmp_path: Path, content: bytes, match: str) -> None:
    (tmp_path / "x").write_bytes(content)
    refused(tmp_path / "x", match)


def assembled(header: object, body: bytes = bytes(24), length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def entry(start: int, end: int, shape: object = (3,), dtype: object = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


TWO = {"a": entry(0, 12), "b": entry(12, 24)}
HOSTILE: dict[str, tuple[bytes, str]] = {
    "length beyond the file": (assembled(TWO, length=1 << 40), "too large a header"),
    "20 MB of header": (assembled(json.dumps(TWO).encode() + b" " * (20 << 20)), "too large a header"),
    "overlap": (assembled({"a": entry(0, 12), "b": entry(8, 20)}, bytes(20)), "invalid offset for tensor"),
    "too many bytes": (assembled(TWO, bytes(25)), "not fully covered"),
    "size is not the shape": (assembled({"a": entry(0, 12, [4])}, bytes(12)), "invalid shape, data type, or offset"),
    "end before start": (assembled({"a": entry(12, 0)}, bytes(12)), "invalid offset|overflow"),
    "overflowing shape": (assembled({"a": entry(0, 0, [1 << 62, 1 << 62, 4])}, b""), "invalid offset|overflow"),
    "negative shape": (assembled({"a": entry(0, 12, [-1, -3])}, bytes(12)), "damaged"),
    "a thousand dimensions": (assembled({"a": entry(0, 4, [1] * 1000)}, bytes(4)), "describes a tensor"),
    "unknown dtype": (assembled({"a": entry(0, 12, dtype="F4")}, bytes(12)), "damaged"),
    "extra key": (assembled({"a": entry(0, 12) | {"run": "me"}}, bytes(12)), "damaged header at tensor 'a'"),
    "a name twice": (
        assembled(b"{" + b",".join([b'"a":' + json.dumps(entry(0, 12)).encode()] * 2) + b"}", bytes(12)),
        "duplicate name",
    ),
    "metadata twice": (assembled(b'{"__metadata__":{"x":"1","x":"2"}}', b""), "duplicate name"),
    "metadata not text": (assembled(TWO | {"__metadata__": {"x": [1]}}), "damaged"),
    "not UTF-8": (assembled(b'{"\xff\xfe":1}'), "damaged"),
    "a hundred thousand brackets": (assembled(b'{"a":' + b"[" * 100_000), "damaged"),
    "nothing but a header": (assembled(b"{}", b""), "holds no state dict but nothing"),
    "too many tensors": (assembled({str(i): entry(0, 0, [0]) for i in range(100_001)}, b""), "more than 100000"),
}


@pytest.mark.nightly(but=("header",))
@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile_safetensors(tmp_path: Path, name: str) -> None:
    content, match = HOSTILE[name]
    (tmp_path / "x.safetensors").write_bytes(content)
    refused(tmp_path / "x.safetensors", match)


@pytest.mark.parametrize("write", [lambda state, path: torch.save(state, path), save_file])
def test_truncated_anywhere(tmp_path: Path, write: Callable[[Any, Path], None]) -> None:
    path = tmp_path / "x"
    write(modules()["mlp"].state_dict(), path)
    content = path.read_bytes()
    for length in range(1, len(content), max(1, len(content) // 97)):
        path.write_bytes(content[:length])
        refused(path, "truncated|damaged|neither|empty|header")


def test_bit_flips_in_a_header_never_escape_as_another_error(tmp_path: Path) -> None:
    path = tmp_path / "x"
    content = save(modules()["mlp"].state_dict())
    end = 8 + int.from_bytes(content[:8], "little")
    outcomes = [flipped(path, content, bit) for bit in range(0, 8 * end, 7)]
    assert sum(outcomes) > 0.4 * len(outcomes)  # the rest are other names, which `fit` refuses, and other padding


def flipped(path: Path, content: bytes, bit: int) -> bool:
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    path.write_bytes(damaged)
    try:
        checkpoint.read_checkpoint(path)
    except CheckpointError:
        return True
    return False


def test_fit() -> None:
    state = {"a": torch.ones(2, 3), "b": torch.ones(4), "base_model.x": torch.ones(1)}
    assert list(checkpoint.fit_checkpoint(state, {"b": (4,), "a": (2, 3), "base_model.x": (1,)})) == [
        "b",
        "a",
        "base_model.x",
    ]
    with pytest.raises(CheckpointError, match=r"'x.pt' is of another model \(unexpected 'base_model.x'\)"):
        checkpoint.fit_checkpoint(state, {"a": (2, 3), "b": (4,)}, origin="'x.pt'")
    wanted = {"a": (3, 2), "b": (), **{f"layer.{i}": (1,) for i in range(9)}}
    with pytest.raises(CheckpointError) as caught:
        checkpoint.fit_checkpoint({name: state[name] for name in "ab"}, wanted)
    assert str(caught.value) == (
        "the checkpoint is of another model (missing 'layer.0', 'layer.1', 'layer.2' and 6 more; "
        "other shapes: 'a' [2, 3] instead of [3, 2], 'b' [4] instead of []). Name the model that it belongs to"
    )
