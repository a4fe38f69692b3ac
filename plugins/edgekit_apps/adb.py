"""Phones connected by adb: a pack is copied there, the bench app answers it, and its result is copied back.

The app is `mobile/android/bench`; adb's own settings select the server and the key. The files of a run lie in separate
folders on the phone, which are always removed. Any failure on the way is `NotVerifiedHere`.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from edgekit.errors import NotVerifiedHere
from edgekit.evaluate.__main__ import ARCHIVE, PACK
from edgekit.hosts.catalogue import FurtherPlace
from edgekit.hosts.command import plain, run_command

INSTALL = "./gradlew :bench:installDebug in mobile/android"
APP = "org.edgekit.bench"
ENTRY = f"{APP}/.BenchInstrumentation"
CARRIED = (PACK, "questions", "artifacts")
"""Parts of a pack's folder that are copied: the app has its own engine."""
THERE = "/data/local/tmp"
"""Folder that adb may write, and every app may read."""
RESULTS = f"/sdcard/Android/media/{APP}"
"""Folder that the app may write, and adb may read."""
OLDEST = 26
"""The app's minimum Android API level (`minSdk`), and the processors of its runtimes:"""
ABIS = ("arm64-v8a", "x86_64")
CONNECT, STEP, RUN = 60, 600, 14_400
"""Seconds: for a reply, to copy there or back, to answer everything."""
SILENT = 600
"""Seconds without a line of the app, which reports progress every few: then it hangs."""
LONGEST_LINE = 1 << 20
PROPERTIES = (
    "ro.product.manufacturer", "ro.product.model", "ro.build.version.release", "ro.build.version.sdk",
    "ro.product.cpu.abilist", "ro.serialno",
)  # fmt: skip
BOOT = "/proc/sys/kernel/random/boot_id"
LINE = re.compile(r"INSTRUMENTATION_(?P<kind>STATUS|RESULT|CODE|FAILED|ABORTED): (?P<rest>.*)")
FINISHED = "-1"  # Android's Activity.RESULT_OK
Said = dict[str, str]


@dataclass(frozen=True)
class Phone:
    """A phone's description of itself; `boot` changes with each start."""

    serial: str
    manufacturer: str
    model: str
    android: str
    api: int
    abis: tuple[str, ...]
    own_serial: str
    boot: str

    @property
    def name(self) -> str:
        """The phone in words."""
        return f"'{self.manufacturer} {self.model}' ({self.serial})"


def status() -> str:
    """Return the status of the place for `edgekit doctor`."""
    adb = "adb is here" if shutil.which("adb") else "needs adb: apt-get install adb"
    return f"{adb}; the phone's app: {INSTALL}; not verified here: no phone has run it"


def answer_pack(place: FurtherPlace, pack: Path, progress: Callable[[str], None]) -> Path:
    """Answer an unpacked pack of one artifact on a phone; return the result archive, inside the pack's folder.

    Raises:
        NotVerifiedHere: If the phone is not connected, does not have the app, or anything breaks off.
    """
    if shutil.which("adb") is None:
        raise NotVerifiedHere("adb is not installed. Install Android's platform tools (apt-get install adb)")
    phone = _describe_phone(_select_phone(place.host))
    _require_app(phone)
    name = f"edgekit-{secrets.token_hex(8)}"
    questions, results = f"{THERE}/{name}", f"{RESULTS}/{name}"
    parts = [str(pack / part) for part in CARRIED]
    try:
        progress(f"copying to {phone.name}")
        _shell(phone, f"mkdir -p {questions}")
        _adb(phone, f"copying to {phone.name}", "push", *parts, questions)
        _shell(phone, f"chmod -R a+rX {questions}")
        progress(f"starting the bench app on {phone.name}")
        _require_end(phone, _run_app(phone, questions, progress))
        progress(f"copying back from {phone.name}")
        _adb(phone, f"copying back from {phone.name}", "pull", f"{results}/{ARCHIVE}", str(pack / ARCHIVE))
        if _describe_phone(phone.serial) != phone:
            raise NotVerifiedHere(f"{phone.name} was restarted or replaced by another phone. Run it again")
    finally:
        # If the server or cable is gone, leftovers stay in the shell's own temporary folder.
        command = ["adb", "-s", phone.serial, "shell", f"am force-stop {APP}; rm -rf {questions} {results}"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=CONNECT, check=False)
    return pack / ARCHIVE


def _select_phone(serial: str) -> str:
    """Return the phone with this serial number, or the only one."""
    phones = _states()
    phone_names = ", ".join(f"'{name}'" for name in phones)
    if not phones:
        raise NotVerifiedHere("no phone is connected. Connect one, and turn on USB debugging in its developer options")
    if not serial and len(phones) > 1:
        raise NotVerifiedHere(f"{len(phones)} phones are connected. Name one of {phone_names} as --place adb:SERIAL")
    serial = serial or next(iter(phones))
    if serial not in phones:
        raise NotVerifiedHere(f"no phone '{serial}' is connected. Connected: {phone_names}")
    state = phones[serial]
    if state == "unauthorized":
        raise NotVerifiedHere(f"the phone '{serial}' does not trust this host yet. Unlock it and answer its question")
    if state != "device":
        raise NotVerifiedHere(f"the phone '{serial}' cannot be reached: adb reports '{state}'")
    return serial


def _states() -> dict[str, str]:
    """Return the state of all phones that adb lists, by serial number."""
    listing = run_command(["adb", "devices"], "adb failed", CONNECT).decode(errors="replace")
    rows = (line.partition("\t") for line in listing.splitlines() if "\t" in line)
    return {plain(serial): plain(state) for serial, _, state in rows}


def _describe_phone(serial: str) -> Phone:
    commands = [*(f"getprop {name}" for name in PROPERTIES), f"cat {BOOT}"]
    answer = run_command(
        _command(serial, "shell", "; ".join(commands)), f"asking the phone '{serial}' what it is", CONNECT
    )
    lines = [line.strip() for line in answer.decode(errors="replace").splitlines()]
    if len(lines) != len(commands) or not "".join(lines).isprintable() or not lines[3].isdecimal():
        words = plain(" ".join(lines)[:100])
        raise NotVerifiedHere(f"the phone '{serial}' did not describe itself. Its reply was '{words}'")
    manufacturer, model, android, api, abis, own, boot = lines
    return Phone(serial, manufacturer, model, android, int(api), tuple(abis.split(",")), own, boot)


def _require_app(phone: Phone) -> None:
    if phone.api < OLDEST:
        raise NotVerifiedHere(f"{phone.name} has API level {phone.api}. The bench app needs {OLDEST}")
    if not set(ABIS) & set(phone.abis):
        raise NotVerifiedHere(f"{phone.name} runs {', '.join(phone.abis)}. The bench app has {' and '.join(ABIS)}")
    command = _command(phone.serial, "shell", f"pm path {APP} || true")
    if not run_command(command, f"asking {phone.name} for its apps", CONNECT).startswith(b"package:"):
        raise NotVerifiedHere(
            f"the bench app is not installed on {phone.name}. Run ./gradlew :bench:installDebug in mobile/android"
        )


def _command(serial: str, *words: str) -> list[str]:
    return ["adb", "-s", serial, *words]


def _shell(phone: Phone, command: str) -> None:
    _adb(phone, f"{phone.name} refused `{command.partition(' /')[0]}`", "shell", command)


def _adb(phone: Phone, what: str, *words: str) -> None:
    """Run an adb command, and end it if the phone is lost: adb itself would wait for it."""

    def alive() -> None:
        if not _exists(phone):
            raise NotVerifiedHere(f"{what}: the connection was lost")

    run_command(_command(phone.serial, *words), what, STEP, alive=alive)


def _exists(phone: Phone) -> bool:
    return _states().get(phone.serial) == "device"


def _run_app(phone: Phone, questions: str, progress: Callable[[str], None]) -> Said:
    """Run the app to its end; return its final values, with `code`, and `last`, its last line."""
    command = _command(phone.serial, "shell", f"am instrument -w -r -e pack {questions} {ENTRY}")
    app = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    statuses: Said = {}
    try:
        for line in _lines(app, phone):
            statuses["last"] = line
            if (match := LINE.fullmatch(line)) is None:
                continue
            kind, (key, _, value) = match["kind"], match["rest"].partition("=")
            if kind == "STATUS" and key == "progress":
                progress(f"{phone.name}: {plain(value)}")
            elif kind == "CODE":
                statuses["code"] = key
            elif kind != "STATUS" or key == "Error":
                statuses[key] = plain(value)
        return statuses
    finally:
        app.kill()
        app.wait()


def _lines(app: subprocess.Popen[bytes], phone: Phone) -> Iterator[str]:
    if app.stdout is None:
        return
    with app.stdout as pipe:
        rest, end = b"", time.monotonic() + RUN
        while True:
            seconds = min(SILENT, end - time.monotonic())
            if seconds <= 0:
                raise NotVerifiedHere(f"the bench app on {phone.name} did not end in {RUN} s and was stopped")
            if not select.select([pipe], [], [], seconds)[0]:
                raise NotVerifiedHere(f"the bench app on {phone.name} was silent for {seconds:.0f} s and was stopped")
            data = os.read(pipe.fileno(), 1 << 16)
            *lines, rest = (rest + data).split(b"\n")
            yield from (plain(line.decode(errors="replace")) for line in lines if line.strip())
            if not data or len(rest) > LONGEST_LINE:
                return


def _require_end(phone: Phone, statuses: Said) -> None:
    """Check that the app ended normally and has a result."""
    if "error" in statuses:
        raise NotVerifiedHere(f"the bench app on {phone.name}: {statuses['error']}")
    if statuses.get("code") == FINISHED:
        return
    if "shortMsg" in statuses:
        raise NotVerifiedHere(
            f"the bench app on {phone.name} ended while it ran ({statuses['shortMsg'].rstrip('.')}): killed, out of "
            "memory, or a crash of the runtime. `adb logcat` shows which"
        )
    if "Error" in statuses:
        raise NotVerifiedHere(f"{phone.name} does not start the bench app: {statuses['Error']}")
    if not _exists(phone):
        raise NotVerifiedHere(f"the connection to {phone.name} was lost while its app ran")
    raise NotVerifiedHere(
        f"the bench app on {phone.name} broke off. Its last line was '{statuses.get('last', '')[:80]}'"
    )
