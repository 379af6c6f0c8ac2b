"""Builds the pages that are there into a site with search: `make site` (Sphinx, MyST, Furo)."""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
project = "Pliant"
html_title = "Pliant"
html_theme = "furo"
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["*.md", "docs/**.md"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
PARTS = {
    "To look at": ("docs/gallery",),
    "Systems": ("docs/tokens", "docs/bins", "docs/cascade", "docs/packing"),
    "Running it": ("docs/deploy", "docs/operations", "docs/watch", "docs/backup", "docs/settings", "docs/metrics"),
    "Reference": ("docs/interfaces", "docs/vllm", "docs/provenance", "docs/architecture"),
    "Why it is so": ("DESIGN", "LOG", "docs/log/*", "CONTRIBUTING", "CHANGELOG"),
}
"""What stands at the side of every page, by heading."""


def add_contents(_app: Sphinx, page: str, source: list[str]) -> None:
    """Give the first page the contents, which its readers elsewhere need not see."""
    if page == root_doc:
        for caption, pages in PARTS.items():
            listed = "\n".join(pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {caption}\n\n{listed}\n```\n"


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", add_contents)
