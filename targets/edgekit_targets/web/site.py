"""The page and the runtime of a web bundle: their places, headers for hosts, compressed siblings.

In a wheel they are the folder `edgekit_targets/web/_web`, with WebAssembly as `.wasm.xz`. In a checkout they are
`web/dist`, built on demand.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import lzma
import os
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from edgekit.errors import ExportError
from edgekit.storage.files import digest_file, dump_json, lock, user_folder, write_bytes
from edgekit_targets.web.server import HEADERS

PACKAGED = Path(__file__).parent / "_web"
CHECKOUT = Path(__file__).parents[3] / "web"
SOURCES = ("src", "page", "sw", "public", "licences", "index.html", "vite.config.ts", "package-lock.json")
STAMP = ".sources"
# The address of each file there holds a hash or a version.
UNCHANGING = ("/assets/", "/ort/")
FOREVER = "public, max-age=31536000, immutable"
ASYNCIFY = ("*asyncify*", "ort.webgpu.*")

# Lower if the size does not matter, as in tests.
QUALITY_VARIABLE = "EDGEKIT_BROTLI_QUALITY"
# Of brotli: 24 s for the larger runtime once, and 20 % smaller than quality 9.
QUALITY = 11
# Of larger models. Weights hardly compress, and quality 11 takes ten times as long for 1 %.
MODEL_QUALITY = 9
# Bytes up to which a model gets the best quality: seven seconds.
SMALL_MODEL = 4 << 20
WINDOW = 24
# Share of the original size below which a compressed file is kept.
WORTH = 0.97
# Bytes from which compressed bytes are cached. Below, compression takes milliseconds.
KEPT = 1 << 16
# In bytes. Below, headers weigh more.
SMALLEST = 512
COMPRESSED = {".br", ".gz", ".png", ".jpg", ".webp"}
# The form of WebAssembly in a wheel (web/hatch_build.py).
PACKED = ".wasm.xz"
# File types that browsers fetch.
SERVED = {".html", ".css", ".js", ".mjs", ".json", ".wasm", ".svg", ".bin", ".onnx", ".txt"}
# Bytes per file. Common static hosts refuse more.
LARGEST = 25 << 20


def find() -> Path:
    """Return the built page: packaged, or built from the checkout if its sources changed.

    Raises:
        ExportError: If it is not built and cannot be.
    """
    if (PACKAGED / "index.html").is_file():
        return PACKAGED
    if reason := unavailable_reason():
        raise ExportError(reason)
    stamp = CHECKOUT / "dist" / STAMP
    expected_digest = digest(CHECKOUT)
    # Two exports at once must not both empty the folder.
    with lock(CHECKOUT, lambda: None):
        if not stamp.is_file() or stamp.read_text() != expected_digest:
            build(CHECKOUT)
            stamp.write_text(expected_digest)
    return CHECKOUT / "dist"


def unavailable_reason() -> str:
    """Return why the page is not available here, in a sentence. Empty if it is."""
    if (PACKAGED / "index.html").is_file():
        return ""
    if not (CHECKOUT / "package.json").is_file():
        return "this installation lacks the page of the target 'web'. Reinstall edgekit from a wheel"
    stamp = CHECKOUT / "dist" / STAMP
    if shutil.which("npm") or (stamp.is_file() and stamp.read_text() == digest(CHECKOUT)):
        return ""
    return f"the page in '{CHECKOUT}' is not built, and npm is not installed. Install Node 20 and export again"


def fingerprint() -> str:
    """Return the sha256 of a bundle's page, either packaged or built from a checkout."""
    packaged = (PACKAGED / "index.html").is_file()
    return _digest(PACKAGED, sorted(p.name for p in PACKAGED.iterdir())) if packaged else digest(CHECKOUT)


def digest(web: Path) -> str:
    """Return the sha256 of all sources of the built page."""
    return _digest(web, SOURCES)


def _digest(folder: Path, names: Sequence[str]) -> str:
    hashed = hashlib.sha256()
    for name in names:
        path = folder / name
        for file in sorted(p for p in (path.rglob("*") if path.is_dir() else (path,)) if p.is_file()):
            hashed.update(f"{file.relative_to(folder).as_posix()} {digest_file(file)}\n".encode())
    return hashed.hexdigest()


def build(web: Path) -> None:
    """Build the page with npm.

    Raises:
        ExportError: If the build fails.
    """
    installed = web / "node_modules" / ".package-lock.json"
    current = installed.is_file() and installed.stat().st_mtime >= (web / "package-lock.json").stat().st_mtime
    for command in (("npm", "ci", "--ignore-scripts"), ("npm", "run", "build")):
        if command[1] == "ci" and current:
            continue
        process = subprocess.run(command, cwd=web, capture_output=True, text=True, timeout=600, check=False)
        if process.returncode:
            last = (process.stderr.strip() or process.stdout.strip()).splitlines()[-1:]
            raise ExportError(f"`{' '.join(command)}` in '{web}' failed: {' '.join(last)}")


def copy(site: Path, out: Path, asyncify: bool = False) -> None:
    """Copy the page, the runtime and the licences into a bundle. The asyncify build is optional."""
    left_out = shutil.ignore_patterns(STAMP, "*.br", "*.gz", *(() if asyncify else ASYNCIFY))
    shutil.copytree(site, out, ignore=left_out, dirs_exist_ok=True)
    for packed in sorted(out.rglob(f"*{PACKED}")):
        packed.with_suffix("").write_bytes(lzma.decompress(packed.read_bytes()))
        packed.unlink()


def write_headers(out: Path) -> None:
    """Write header files for hosts that read them. The service worker replaces them on other hosts."""
    lines = "".join(f"  {name}: {value}\n" for name, value in HEADERS.items())
    rules = "".join(f"{folder}*\n  Cache-Control: {FOREVER}\n" for folder in UNCHANGING)
    # Netlify, Cloudflare Pages.
    (out / "_headers").write_text(f"/*\n{lines}{rules}")
    rows = [{"key": name, "value": value} for name, value in HEADERS.items()]
    forever = [{"key": "Cache-Control", "value": FOREVER}]
    entries = [{"source": f"{folder}(.*)", "headers": forever} for folder in UNCHANGING]
    (out / "vercel.json").write_text(dump_json({"headers": [{"source": "/(.*)", "headers": rows}, *entries]}))
    apache = "".join(f'  Header set {name} "{value}"\n' for name, value in HEADERS.items())
    types = "AddType application/wasm .wasm\nAddType text/javascript .mjs .js\n"
    (out / ".htaccess").write_text(f"{types}<IfModule mod_headers.c>\n{apache}</IfModule>\n")
    # For GitHub Pages, which otherwise ignores files that begin with _.
    (out / ".nojekyll").write_text("")
    deploy = out / "deploy"
    deploy.mkdir()
    nginx = "".join(f'add_header {name} "{value}" always;\n' for name, value in HEADERS.items())
    # A server's `types` block would replace all the types that nginx knows.
    kinds = {"wasm": "application/wasm", "mjs": "text/javascript"}
    served = "".join(f"location ~ \\.{end}$ {{ types {{ }} default_type {kind}; }}\n" for end, kind in kinds.items())
    static = f"# Inside a server block.\n{served}gzip_static on;\nbrotli_static on;  # with ngx_brotli\n"
    (deploy / "nginx.conf").write_text(static + nginx)
    lower = "".join(f"  {name.lower()}: {value}\n" for name, value in HEADERS.items() if name.startswith("Cross"))
    (deploy / "huggingface-space.md").write_text(f"---\nsdk: static\ncustom_headers:\n{lower}---\n")


def compress(out: Path, progress: Callable[[float], None]) -> None:
    """Write `.br` and `.gz` files next to every file that gets smaller, with a cache by content hash.

    Raises:
        ExportError: If a file is larger than static hosts take.
    """
    files = [p for p in sorted(out.rglob("*")) if p.is_file() and p.suffix not in COMPRESSED]
    for path in files:
        # That one was asked for, with a note.
        if path.stat().st_size > LARGEST and "asyncify" not in path.name:
            size = path.stat().st_size / 2**20
            raise ExportError(f"'{path.name}' has {size:.1f} MiB, and common static hosts refuse more than 25 per file")
    files = [p for p in files if p.stat().st_size >= SMALLEST and p.suffix in SERVED]
    # The longest first, so that no core waits for it at the end.
    files.sort(key=lambda path: -path.stat().st_size)
    sizes, bytes_done = {path: path.stat().st_size for path in files}, 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {pool.submit(_compress, path): path for path in files}
        for job in as_completed(jobs):
            job.result()
            bytes_done += sizes[jobs[job]]
            progress(bytes_done / sum(sizes.values()))


def prepare() -> None:
    """Build the page and compress its fixed files, so that an export need not."""
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        copy(find(), Path(folder))
        compress(Path(folder), lambda share: None)


def _compress(path: Path) -> None:
    import brotli

    data = path.read_bytes()
    most = int(os.environ.get(QUALITY_VARIABLE, QUALITY))
    large = path.suffix == ".onnx" and len(data) > SMALL_MODEL
    quality = min(MODEL_QUALITY, most) if large else most
    by_brotli = functools.partial(brotli.compress, data, quality=quality, lgwin=WINDOW)
    by_gzip = functools.partial(gzip.compress, data, 9, mtime=0)
    for suffix, how, compressor, expand in (
        (".br", f"brotli-{quality}-{brotli.__version__}", by_brotli, brotli.decompress),
        (".gz", f"gzip-{zlib.ZLIB_RUNTIME_VERSION}", by_gzip, gzip.decompress),
    ):
        content = _cached_compression(data, how, compressor, expand)
        if len(content) < WORTH * len(data):
            path.with_name(path.name + suffix).write_bytes(content)


def _cached_compression(
    data: bytes, how: str, compress: Callable[[], bytes], expand: Callable[[bytes], bytes]
) -> bytes:
    """Return cached compressed data if it expands to the data, else compress. Short files are never cached."""
    if len(data) < KEPT:
        return compress()
    root = user_folder("compressed")
    cached = root / f"{hashlib.sha256(data).hexdigest()}.{how}"
    try:
        content = cached.read_bytes()
        if expand(content) == data:
            return content
    # Missing or damaged. Each library has a different error for that.
    except Exception as error:
        del error
    content = compress()
    try:
        root.mkdir(parents=True, exist_ok=True)
        write_bytes(cached, content)
    except OSError:
        # A home that cannot be written costs only time.
        pass
    return content


if __name__ == "__main__":
    prepare()
