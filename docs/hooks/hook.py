"""What MkDocs calls while it builds the site: parts that are made from the code, and files that lie elsewhere.

`rendering` says how a page asks for a part. A name that does not exist ends the build.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

from rendering import fill

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
ELSEWHERE = {"pictures": "web/docs/*.webp", "examples": "examples/*.ipynb", ".": "web/public/icon.svg"}
"""Folder of the site -> files of the repository that pages show; a page links them as readers of the repository do."""
LINKS = {"../web/docs/": "pictures/", "../examples/": "examples/"}


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the files that lie outside of docs/."""
    for folder, pattern in ELSEWHERE.items():
        for path in sorted(ROOT.glob(pattern)):
            uri = (Path(folder) / path.name).as_posix()
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the parts in."""
    for link, place in LINKS.items():
        markdown = markdown.replace(f"({link}", f"({place}")
    try:
        return fill(markdown)
    except LookupError as error:
        raise PluginError(f"{page.file.src_uri}: {error}") from error
