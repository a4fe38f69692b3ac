"""Torch files that want code, lie about their storages or hide a second archive: each is refused, and nothing runs."""

from __future__ import annotations

import collections
import gc
import io
import os
import pickle
import struct
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from edgekit.errors import CheckpointError
from edgekit.model.sources import checkpoint

RAN: list[str] = []
WATCHED = {"os.system", "subprocess.Popen", "os.mkdir", "os.remove", "pickle.find_class", "socket.connect", "os.exec"}
watching = False


def _canary(event: str, _: object) -> None:
    if watching and event in WATCHED:
        RAN.append(event)


sys.addaudithook(_canary)


class Calls:
    """Pickles as a call of whatever it is given."""

    def __init__(self, *call: object):
        self.call = call

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.call[0], self.call[1:]


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def named(name: str) -> bytes:
    module, _, attribute = name.partition(" ")
    return f"c{module}\n{attribute}\n".encode()


def storage(kind: str = "torch FloatStorage", key: bytes = text("0"), count: bytes = b"K\x04") -> bytes:
    return b"(" + text("storage") + named(kind) + key + text("cpu") + count + b"tQ"


SIZE, STRIDE, OFFSET = b"(K\x02K\x02t", b"(K\x02K\x01t", b"K\x00"
HOOKS = named("collections OrderedDict") + b")R"


def tensor(store: bytes = storage(), offset: bytes = OFFSET, size: bytes = SIZE, stride: bytes = STRIDE) -> bytes:
    return named("torch._utils _rebuild_tensor_v2") + b"(" + store + offset + size + stride + b"\x89" + HOOKS + b"tR"


def state(value: bytes = tensor(), key: bytes = text("w")) -> bytes:
    return b"\x80\x02}" + key + value + b"s."


def archived(code: bytes, records: dict[str, bytes] | None = None, kind: int = zipfile.ZIP_STORED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", kind) as archive:
        archive.writestr("x/data.pkl", code)
        for name, content in ({"data/0": bytes(16), "version": b"3\n"} if records is None else records).items():
            archive.writestr(f"x/{name}", content)
    return made.getvalue()


def refused(path: Path, content: bytes, match: str) -> None:
    global watching
    path.write_bytes(content)
    # A collection may end what other tests of this process left, and remove their files.
    gc.disable()
    watching = True
    try:
        with pytest.raises(CheckpointError, match=match) as caught:
            checkpoint.read_checkpoint(path)
    finally:
        watching = False
        gc.enable()
    assert RAN == [], "code from a checkpoint ran"
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"the checkpoint '{path}' ")


def test_the_canary_would_sing() -> None:
    global watching
    watching = True
    pickle.loads(pickle.dumps(Calls(os.system, "true")))  # noqa: S301 - on purpose
    watching = False
    assert {"pickle.find_class", "os.system"} <= set(RAN)
    RAN.clear()


def test_the_hand_made_file_is_good(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(archived(state()))
    assert checkpoint.read_checkpoint(tmp_path / "x")["w"].shape == (2, 2)


PICKLES: dict[str, tuple[bytes, str]] = {
    "os.system": (pickle.dumps(Calls(os.system, "touch canary"), 2), "would run code .global 'posix.system'"),
    "protocol 0": (pickle.dumps(Calls(os.system, "true"), 0), "global 'posix.system'"),
    "protocol 4": (pickle.dumps(Calls(os.system, "true"), 4), "pickle protocol 4"),
    "STACK_GLOBAL": (state(text("os") + text("system") + b"\x93"), "opcode STACK_GLOBAL"),
    "dotted GLOBAL": (state(named("torch serialization.os.system") + b"(" + text("true") + b"tR"), "os.system"),
    "lookalike module": (state(named("torch._utils_ _rebuild_tensor_v2")), "global 'torch._utils_._rebuild_tensor_v2'"),
    "lookalike storage": (
        state(named("torch.storage _load_from_bytes") + b"(" + text("x") + b"tR"),
        "_load_from_bytes",
    ),
    "INST": (b"(" + text("true") + b"ios\nsystem\n.", "opcode INST"),
    "NEWOBJ": (state(named("torch Size") + b")\x81"), "opcode NEWOBJ"),
    "EXT1": (state(b"\x82\x01"), "opcode EXT1"),
    "PERSID": (b"Pos.system\n.", "opcode PERSID"),
    "bytes": (state(b"C\x01x"), "opcode SHORT_BINBYTES"),
    "call of a storage kind": (state(named("torch FloatStorage") + b")R"), "damaged"),
    "call of a text": (state(text("os.system") + b")R"), "not a regular file"),
    "OrderedDict of arguments": (state(named("collections OrderedDict") + b"(" + text("x") + b"tR"), "damaged"),
    "BUILD of a tensor beyond its storage": (
        state(tensor() + b"(" + storage() + OFFSET + b"(K\x03K\x02t" + STRIDE + b"tb"),
        "resize storage",
    ),
    "BUILD that shadows items": (
        b"\x80\x02" + HOOKS + text("w") + tensor() + b"s}" + text("items") + named("torch device") + b"sb.",
        "sets attributes",
    ),
    "BUILD with a list": (state(HOOKS + b"]b"), "holds no state dict"),
    "SETITEM on a tensor": (b"\x80\x02" + tensor() + b"K\x00K\x01s.", "not a regular file"),
    "APPEND to a dict": (b"\x80\x02}K\x01a.", "not a regular file"),
    "key that is a tensor": (state(key=tensor()), "dictionary key"),
    "key nested deep": (state(key=b")" + b"\x85" * 100_000), "nested deeper than 100"),
    "storage beyond its record": (state(tensor(storage(count=b"M\xff\xff"))), "record size"),
    "storage without a record": (state(tensor(storage(key=text("../../etc/passwd")))), "damaged"),
    "storage of quantized items": (state(tensor(storage("torch QInt8Storage"))), "a kind that edgekit does not read"),
    "persistent id that is a text": (state(text("os.system") + b"Q"), "not a regular file"),
    "tensor beyond its storage": (state(tensor(size=b"(K\x03K\x02t")), "resize storage"),
    "tensor expanded to 2^40": (
        state(tensor(size=b"(\x8a\x06\0\0\0\0\0\x01t", stride=b"(K\x00t")),
        "more than 20 times",
    ),
    "tensor with hooks": (state(tensor()).replace(HOOKS, HOOKS + b"K\x01K\x01s"), "describes a tensor"),
    "tensor with metadata": (
        state(tensor()).replace(HOOKS + b"t", HOOKS + b"}" + text("neg") + b"\x88st"),
        "describes a tensor",
    ),
    "parameter of no tensor": (
        state(named("torch._utils _rebuild_parameter") + b"(K\x01\x89" + HOOKS + b"tR"),
        "damaged",
    ),
    "stack underflow": (b"\x80\x02s.", "damaged"),
    "no end": (state()[:-1], "damaged"),
    "a second pickle behind": (state() + pickle.dumps(Calls(os.system, "true"), 2), "bytes after the end"),
    "nothing": (b"", "damaged"),
    "no state dict": (b"\x80\x02]K\x01a.", "holds no state dict but a list"),
    "a state dict of numbers": (state(b"K\x01"), "holds no state dict but 'w'"),
    "a wrapper around itself": (b"\x80\x02}q\x00" + text("model") + b"h\x00s.", "holds no state dict"),
    "a bomb of opcodes": (b"\x80\x02" + b"]" * 2_100_000 + b".", "more than 2000000 pickle opcodes"),
}


@pytest.mark.nightly(but=("BUILD",))
@pytest.mark.parametrize("name", sorted(PICKLES))
def test_hostile_pickles(tmp_path: Path, name: str) -> None:
    code, match = PICKLES[name]
    refused(tmp_path / "x.pt", archived(code), match)
    assert [path.name for path in tmp_path.iterdir()] == ["x.pt"]


def test_attributes_of_a_tensor_are_at_most_an_empty_tensor(tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(archived(state(tensor() + b"}b")))
    assert checkpoint.read_checkpoint(tmp_path / "x.pt")["w"].numel() == 0


def test_real_files_of_torch_that_want_code(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save(torch.nn.Linear(2, 2), path)
    refused(path, path.read_bytes(), r"global 'torch.nn.modules.linear.Linear'")
    torch.save({"w": torch.ones(1), "run": Calls(os.system, "true")}, path)
    refused(path, path.read_bytes(), r"global 'posix.system'")
    torch.save({"w": torch.ones(2, dtype=torch.complex64)}, path)
    refused(path, path.read_bytes(), "a kind that edgekit does not read")
    torch.save({"w": torch.ones(3).to_sparse()}, path)
    refused(path, path.read_bytes(), "_rebuild_sparse_tensor")
    torch.save({"w": torch.ones(2)}, path, _use_new_zipfile_serialization=False)
    refused(path, path.read_bytes(), "bare pickle")


def test_many_views_of_one_storage_are_a_bomb(tmp_path: Path) -> None:
    weight = torch.zeros(10_000)
    torch.save({f"w{i}": weight for i in range(50)}, tmp_path / "x.pt")
    refused(tmp_path / "x.pt", (tmp_path / "x.pt").read_bytes(), "unpacks to more than 20 times")


def double(first: bytes, second: bytes) -> bytes:
    """One archive behind another: Python's reader takes the last, others may take the first."""
    return first + second


GOOD = archived(state())
ARCHIVES: dict[str, tuple[bytes, str]] = {
    "deflated": (archived(state(), kind=zipfile.ZIP_DEFLATED), "compressed or encrypted"),
    "TorchScript": (archived(state(), {"constants.pkl": b"", "code/m.py": b"import os"}), "TorchScript archive"),
    "no data.pkl": (archived(state()).replace(b"data.pkl", b"date.pkl"), "without a data.pkl"),
    "two archives": (double(archived(PICKLES["os.system"][0]), GOOD), "bytes around its archive"),
    "comment": (GOOD[:-2] + b"\x04\x00PK\x05\x06", "bytes around its archive|damaged"),
    "a huge data.pkl": (archived(state() + bytes(17 << 20)), "data.pkl of at most"),
    "nothing in it": (b"PK\x05\x06" + bytes(18), "neither safetensors"),
}


@pytest.mark.parametrize("name", sorted(ARCHIVES))
def test_hostile_archives(tmp_path: Path, name: str) -> None:
    content, match = ARCHIVES[name]
    refused(tmp_path / "x.pt", content, match)


def test_names_twice_folders_and_paths(tmp_path: Path) -> None:
    for names, match in (
        (["x/data.pkl", "y/data.pkl"], "duplicate record names"),
        (["x/data.pkl", "../data/0"], "several folders"),
    ):
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as archive:
            for name in names:
                archive.writestr(name, state())
        refused(tmp_path / "x.pt", made.getvalue(), match)


def test_records_that_overlap(tmp_path: Path) -> None:
    content = archived(state(), {f"data/{i}": bytes(4096) for i in range(3)})
    start = content.index(b"PK\x01\x02")
    offsets = [i for i in range(start, len(content)) if content[i : i + 4] == b"PK\x01\x02"][1:]
    for entry in offsets[1:]:  # every record's header is the first record's
        content = content[: entry + 42] + content[offsets[0] + 42 : offsets[0] + 46] + content[entry + 46 :]
    refused(tmp_path / "x.pt", content, "damaged|not that of its record")


def test_a_zip_bomb_of_overlapping_sizes(tmp_path: Path) -> None:
    content = bytearray(archived(state()))
    entry = content.index(b"PK\x01\x02", content.index(b"PK\x01\x02") + 1)
    content[entry + 20 : entry + 28] = struct.pack("<II", 1 << 30, 1 << 30)
    refused(tmp_path / "x.pt", bytes(content), "zip bomb")


def test_every_flipped_bit_in_the_weights_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save(collections.OrderedDict(w=torch.linspace(1, 2, 64)), path)
    content = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        [record] = [info for info in archive.infolist() if info.filename.endswith("data/0")]
    start = content.index(struct.pack("<f", 1.0), record.header_offset)
    for byte in range(start, start + 256, 5):
        damaged = bytearray(content)
        damaged[byte] ^= 1 << byte % 8
        refused(path, bytes(damaged), "damaged in its record 'x/data/0'")
