"""The pages: every link leads somewhere, and a reader can read them all in an afternoon."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.architecture import OURS
from tests.fixtures.places import ROOT

MOST_WORDS, MOST_README = 35_000, 100
PAGES = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]+))?\)")
MENTION = re.compile(r"(docs/[\w/]+\.md)(?:#([\w-]+))?")
FILE = re.compile(r"`([\w-]+/[\w./-]+\.(?:py|toml))`")
PLACEHOLDER = "docs/SYSTEM.md"


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)


def leads_nowhere(page: Path, anchor: str) -> bool:
    return not page.exists() or (bool(anchor) and page.suffix == ".md" and anchor not in anchors(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page):
    links = [match.groups(default="") for match in LINK.finditer(page.read_text(encoding="utf-8"))]
    local = [(target, anchor) for target, anchor in links if "://" not in target]
    targets = [(page.parent / target if target else page, anchor) for target, anchor in local]
    assert [(str(target), anchor) for target, anchor in targets if leads_nowhere(target, anchor)] == []


@pytest.mark.parametrize("page", [page for page in PAGES if "log" not in page.parts and page.stem != "CHANGELOG"])
def test_every_file_of_ours_that_a_page_names_is_there(page):
    named = FILE.findall(page.read_text(encoding="utf-8"))
    ours = [name.replace("SYSTEM", "*").replace("NAME", "*") for name in named if (ROOT / Path(name).parts[0]).is_dir()]
    assert [name for name in ours if not any(ROOT.glob(name))] == []


def test_every_page_that_code_or_configuration_names_is_there():
    folders = [ROOT / folder for folder in (*OURS, "deploy")]
    files = [path for folder in folders for kind in ("*.py", "*.yaml", "*.yml") for path in folder.rglob(kind)]
    mentions = [
        (path, *match.groups("")) for path in files for match in MENTION.finditer(path.read_text(encoding="utf-8"))
    ]
    lost = [(str(path), name) for path, name, anchor in mentions if leads_nowhere(ROOT / name, anchor)]
    assert [(path, name) for path, name in lost if name != PLACEHOLDER] == []


def test_the_pages_keep_within_their_budget():
    words = {page: len(page.read_text(encoding="utf-8").split()) for page in PAGES}
    assert sum(words.values()) <= MOST_WORDS, {str(page): count for page, count in words.items()}
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= MOST_README


def test_the_site_is_built_without_a_warning_and_can_be_searched(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-c", "docs", ".", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "deadline" in (tmp_path / "searchindex.js").read_text() and (tmp_path / "docs/gallery.html").is_file()
