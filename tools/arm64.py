"""`python -m tools.arm64`: an arm64 Linux for qemu's user emulation, and the name of the place that it is.

    edgekit verify --place "$(python -m tools.arm64)"
    edgekit verify --place "$(python -m tools.arm64 iree)" --trust-build -t iree

The packages come from the package sources of this system, whose signatures apt checks; the wheels are those of
`arm64.txt`. Nothing of it is installed in this system: all lies in one folder.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from edgekit.errors import EdgekitError, NotVerifiedHere, UsageError
from edgekit.storage import environment
from edgekit.storage.files import scratch, staging

QEMU, OLDEST = "qemu-aarch64", 10
"""The emulator, and its oldest version: 7.2 crashes when ONNX Runtime is imported."""
PYTHONS = ("3.13", "3.12", "3.11")
LIBRARIES = ("libc6", "libstdc++6", "libgcc-s1", "zlib1g", "libexpat1", "libffi8", "libbz2-1.0", "liblzma5")
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")
ADD = "python -m tools.arm64"
RUNTIMES = ("ort", "iree")
MARK = "edgekit-arm64"  # says that a folder is such a system


def folder() -> Path:
    """Where the arm64 system lies: $EDGEKIT_ARM64, or `edgekit/arm64` in the user's cache."""
    return environment.folder("arm64")


def command() -> list[str]:
    """What starts Python in the arm64 system.

    Raises:
        NotVerifiedHere: If the emulator or the system is missing; the message says how to get it.
    """
    emulator, home = _emulator(), folder()
    python = next(
        (home / "root/usr/bin" / f"python{v}" for v in PYTHONS if (home / "root/usr/bin" / f"python{v}").is_file()),
        None,
    )
    if python is None:
        raise NotVerifiedHere(f"there is no arm64 system in '{home}': make it with `{ADD}`")
    variables = [f"PYTHONHOME={home / 'root/usr'}", f"PYTHONPATH={home / 'site'}"]
    return ["env", *variables, emulator, "-L", str(home / "root"), str(python)]


def install(progress: Callable[[str], None]) -> Path:
    """Make the arm64 system; returns its folder. One that is there is replaced when the new one is complete.

    Raises:
        UsageError: If this system has no apt, its sources have no arm64, or a wheel is not what it should be.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise UsageError("an arm64 system is made from Debian's or Ubuntu's packages, and there is no apt-get here")
    with staging(folder(), _own) as made, scratch() as work:
        (made / MARK).write_text("made by edgekit\n")
        version = _packages(work, made / "root", progress)
        progress("fetching wheels")
        wheels = work / "wheels"
        platforms = [text for name in PLATFORMS for text in ("--platform", name)]
        download = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--require-hashes",
            "--only-binary=:all:",
        ]
        download += ["--implementation", "cp", "--python-version", version, *platforms, "-d", str(wheels)]
        _done([*download, "-r", str(Path(__file__).with_suffix(".txt"))], "the wheels for arm64 could not be fetched")
        for wheel in sorted(wheels.glob("*.whl")):
            shutil.unpack_archive(wheel, made / "site", "zip")
    return folder()


def _own(there: Path) -> Collection[str]:
    """All of an arm64 system that edgekit made; nothing of any other folder."""
    return {path.relative_to(there).as_posix() for path in there.rglob("*")} if (there / MARK).is_file() else ()


def _packages(work: Path, root: Path, progress: Callable[[str], None]) -> str:
    """Fetch and unpack; returns the version of Python."""
    lists = work / "lists"
    (lists / "partial").mkdir(parents=True)
    options = ["-oAPT::Architecture=arm64", "-oAPT::Architectures=arm64", f"-oDir::State::Lists={lists}"]
    options += ["-oDir::State::status=/dev/null", "-oAPT::Sandbox::User=root", "-qq"]
    progress("reading the list of arm64 packages")
    _done(["apt-get", *options, "update"], "the package sources here have no arm64")
    debs = work / "debs"
    debs.mkdir()
    for version in PYTHONS:
        names = [f"python{version}-minimal", f"libpython{version}-minimal", f"libpython{version}-stdlib"]
        progress(f"fetching Python {version} for arm64")
        try:
            _done(["apt-get", *options, "download", *LIBRARIES, *names], "", cwd=debs)
        except UsageError:
            continue
        for deb in sorted(debs.glob("*.deb")):
            _done(["dpkg", "-x", str(deb), str(root)], f"'{deb.name}' could not be unpacked")
        for link in [path for path in root.rglob("*") if path.is_symlink() and not path.exists()]:
            link.unlink()  # into packages that are not here
        return version
    raise UsageError(f"the package sources here have no Python {', '.join(PYTHONS)} for arm64")


def _emulator() -> str:
    found = shutil.which(QEMU)
    if found is None:
        raise NotVerifiedHere(f"there is no {QEMU} here: install qemu-user, version {OLDEST} or later")
    output = subprocess.run([found, "--version"], capture_output=True, text=True, check=False, timeout=60).stdout
    version = re.search(r"version (\d+)", output)
    if version is None or int(version[1]) < OLDEST:
        number = version[1] if version else "of an unknown version"
        raise NotVerifiedHere(f"{QEMU} is {number}, which ONNX Runtime crashes: install qemu-user {OLDEST} or later")
    return found


def _done(command: Sequence[str], why: str, cwd: Path | None = None) -> None:
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False, cwd=cwd)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{why}: {shlex.join(command[:3])} did not end ({error})") from error
    if ended.returncode:
        lines = [line for line in ended.stderr.splitlines() if line.strip()] or [f"code {ended.returncode}"]
        raise UsageError(f"{why}: {lines[-1][:300]}")


def main() -> None:
    """Make the system where it is missing; print the name of the place of a runtime, `ort` where none is named."""
    runtime = sys.argv[1] if len(sys.argv) > 1 else "ort"
    if runtime not in RUNTIMES:
        raise UsageError(f"the arm64 system has no runtime '{runtime}': it has {', '.join(RUNTIMES)}")
    try:
        words = command()
    except NotVerifiedHere:
        _emulator()
        install(lambda text: print(text, file=sys.stderr))
        words = command()
    print(f"{runtime}@python:{shlex.join(words)}")


if __name__ == "__main__":
    try:
        main()
    except EdgekitError as error:
        raise SystemExit(str(error)) from error
