"""A phone for tests: a daemon that speaks adb's protocol over TCP to the real `adb`, and runs the real bench app.

The protocol is that of Android's `packages/modules/adb/protocol.txt` and `SYNC.TXT`: CNXN, OPEN, OKAY, WRTE and CLSE;
the services `shell,v2:` and `sync:` of version 1. Commands run in this host's shell with the phone's folders moved
below one of the test's, and with `getprop`, `pm` and `am` of this file; `am instrument` starts a JVM.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

HEADER = struct.Struct("<4s5I")
VERSION, LARGEST = 0x01000001, 1 << 18
STDOUT, STDERR, EXIT = 1, 2, 3
MOVED = ("/data/local/tmp", "/sdcard", "/proc/sys/kernel/random")
PROPERTIES = {
    "ro.product.manufacturer": "Debian",
    "ro.product.model": "JVM in a phone's role",
    "ro.build.version.release": "15",
    "ro.build.version.sdk": "35",
    "ro.product.cpu.abilist": "x86_64,arm64-v8a",
    "ro.serialno": "0123456789",
}
AM = """#!/bin/sh
case $1 in
force-stop) [ -f {root}/app.pid ] && kill -9 $(cat {root}/app.pid); echo stopped >> {root}/stopped; exit 0;;
esac
{app} "$@" &
echo $! > {root}/app.pid
wait $!
code=$?
rm {root}/app.pid
[ $code -gt 128 ] && printf 'INSTRUMENTATION_RESULT: shortMsg=Process crashed.\\nINSTRUMENTATION_CODE: 0\\n'
exit 0
"""
Fault = Callable[["Phone"], object]


class Phone:
    """The daemon, listening from now on.

    Args:
        root: A folder of its own: what the phone stores.
        app: The command that runs the bench app, with the words of `am` behind it.

    Attributes:
        faults: Called once each, when a file is sent ("send"), the app tells what it does ("running") or a file is
            fetched ("receive"); a text that one returns is the phone's refusal.
        properties: What `getprop` says.
        installed: Whether the bench app is.
        trusts: Whether it lets this host in.
    """

    def __init__(self, root: Path, app: str) -> None:
        self.root, self.faults = root, dict[str, Fault]()
        self.properties, self.installed, self.trusts = dict(PROPERTIES), True, True
        for folder in MOVED:
            (root / folder[1:]).mkdir(parents=True)
        (root / MOVED[2][1:] / "boot_id").write_text("one start\n")
        (root / "bin").mkdir()
        self.script("am", AM.format(root=root, app=app))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.serial = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def script(self, name: str, text: str) -> None:
        """Make a program of the phone's."""
        path = self.root / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def here(self, path: str) -> Path:
        """Where a file of the phone's is."""
        return self.root / path.lstrip("/")

    def left(self) -> list[str]:
        """Files that a run left on the phone."""
        return [str(p) for folder in MOVED[:2] for p in self.here(folder).rglob("*") if p.is_file()]

    def unplug(self) -> None:
        """Pull the cable."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def kill_app(self) -> None:
        """End the app, as a phone does that has no memory left."""
        os.kill(int((self.root / "app.pid").read_text()), signal.SIGKILL)

    def fault(self, moment: str) -> str | None:
        """What goes wrong at this moment, once."""
        happen = self.faults.pop(moment, None)
        said = happen(self) if happen is not None else None
        return said if isinstance(said, str) else None

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=_Connection(self, connection).serve, daemon=True).start()


class _Connection:
    def __init__(self, phone: Phone, connection: socket.socket) -> None:
        self.phone, self._socket = phone, connection
        self._lock = threading.Lock()
        self._streams: dict[int, _Stream] = {}

    def serve(self) -> None:
        """Answer until the cable is pulled."""
        with self._socket, contextlib.suppress(OSError, EOFError):
            while True:
                command, first, second, size, _, _ = HEADER.unpack(self._read(HEADER.size))
                self._handle(command, first, second, self._read(size))
        for stream in self._streams.values():
            stream.close()

    def send(self, command: bytes, first: int, second: int, data: bytes = b"") -> None:
        """Send a message."""
        magic = int.from_bytes(command, "little") ^ 0xFFFFFFFF
        with self._lock:
            self._socket.sendall(HEADER.pack(command, first, second, len(data), sum(data) & 0xFFFFFFFF, magic) + data)

    def _handle(self, command: bytes, first: int, second: int, data: bytes) -> None:
        if command == b"CNXN" and self.phone.trusts:
            banner = b"device::ro.product.name=jvm;ro.product.model=jvm;ro.product.device=jvm;features=shell_v2,cmd"
            self.send(b"CNXN", VERSION, LARGEST, banner)
        elif command in (b"CNXN", b"AUTH"):
            if first != 3:  # a public key, which a person would have to accept
                self.send(b"AUTH", 1, 0, bytes(20))
        elif command == b"OPEN":
            opened = self._streams[len(self._streams) + 1] = _Stream(self, len(self._streams) + 1, first)
            threading.Thread(target=opened.serve, args=(data.rstrip(b"\0").decode(),), daemon=True).start()
        elif stream := self._streams.get(second):
            if command == b"WRTE":
                stream.given.put(data)
                self.send(b"OKAY", second, first)
            elif command == b"OKAY":
                stream.taken.release()
            else:
                stream.close()

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise EOFError
            data += more
        return data


class _Stream:
    def __init__(self, connection: _Connection, own: int, other: int) -> None:
        self.phone, self._connection, self._ids = connection.phone, connection, (own, other)
        self.given: queue.Queue[bytes] = queue.Queue()
        self.taken = threading.Semaphore(0)
        self._rest, self._closed = b"", False
        self._process: subprocess.Popen[bytes] | None = None

    def serve(self, service: str) -> None:
        """Answer a service to its end."""
        with contextlib.suppress(OSError, EOFError):
            self._connection.send(b"OKAY", *self._ids)
            kind, _, command = service.partition(":")
            if kind.startswith("shell,v2"):
                self._shell(command)
            elif kind == "sync":
                self._sync()
            self._connection.send(b"CLSE", *self._ids)

    def close(self) -> None:
        """The other side has gone; as on a phone, the app runs on."""
        self._closed = True
        self.given.put(b"")
        self.taken.release()

    def _write(self, data: bytes) -> None:
        for at in range(0, len(data), LARGEST):
            self._connection.send(b"WRTE", *self._ids, data[at : at + LARGEST])
            self.taken.acquire()
            if self._closed:
                raise EOFError

    def _read(self, size: int) -> bytes:
        while len(self._rest) < size:
            more = self.given.get()
            if not more:
                raise EOFError
            self._rest += more
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def _shell(self, command: str) -> None:
        root = self.phone.root
        for folder in MOVED:
            command = command.replace(folder, f"{root}{folder}")
        self.phone.script(
            "pm", f"#!/bin/sh\n{'echo package:/data/app/base.apk' if self.phone.installed else 'exit 1'}\n"
        )
        known = "".join(f'{name}) echo "{value}";;\n' for name, value in self.phone.properties.items())
        self.phone.script("getprop", f"#!/bin/sh\ncase $1 in\n{known}esac\n")
        path = {**os.environ, "PATH": f"{root / 'bin'}:{os.environ['PATH']}"}
        process = subprocess.Popen(
            ["sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=path, stdin=subprocess.DEVNULL
        )
        with process:
            while process.stdout is not None and (said := os.read(process.stdout.fileno(), LARGEST // 2)):
                self._write(struct.pack("<BI", STDOUT, len(said)) + said)
                if b"progress=" in said:
                    self.phone.fault("running")
        self._write(struct.pack("<BIB", EXIT, 1, process.returncode & 0xFF))

    def _sync(self) -> None:
        while True:
            kind, size = struct.unpack("<4sI", self._read(8))
            if kind == b"QUIT":
                return
            name = self._read(size).decode()
            if kind == b"STAT":
                self._write(b"STAT" + self._state(self.phone.here(name)))
            elif kind == b"SEND":
                self._receive(name.rpartition(",")[0])
            elif kind == b"RECV":
                self._send(name)
            else:
                raise EOFError

    @staticmethod
    def _state(path: Path) -> bytes:
        if not path.exists():
            return bytes(12)
        found = path.stat()
        return struct.pack("<3I", found.st_mode, found.st_size, int(found.st_mtime))

    def _receive(self, name: str) -> None:
        """A file from the host."""
        refusal = self.phone.fault("send")
        path = self.phone.here(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            while True:
                kind, size = struct.unpack("<4sI", self._read(8))
                if kind == b"DONE":
                    break
                file.write(self._read(size))
        self._write(b"OKAY" + bytes(4) if refusal is None else self._failed(refusal))

    def _send(self, name: str) -> None:
        """A file to the host."""
        path, refusal = self.phone.here(name), self.phone.fault("receive")
        if refusal is None and not path.is_file():
            refusal = "No such file or directory"
        if refusal is not None:
            self._write(self._failed(refusal))
            return
        data = path.read_bytes()
        for at in range(0, len(data), 1 << 16):
            part = data[at : at + (1 << 16)]
            self._write(b"DATA" + struct.pack("<I", len(part)) + part)
        self._write(b"DONE" + bytes(4))

    @staticmethod
    def _failed(why: str) -> bytes:
        return b"FAIL" + struct.pack("<I", len(why)) + why.encode()
