"""What `import pliant` offers: every name is there, the example of the docstring runs, and importing it loads nothing."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys

import pytest

import pliant
from tests.fixtures.places import ROOT


@pytest.mark.parametrize("name", pliant.__all__)
def test_what_is_offered_is_there_and_says_what_it_is(name):
    assert documented(getattr(pliant, name))
    assert f"`{name}`" in pliant.__doc__


def documented(offered) -> bool:
    """Whether somebody wrote a docstring: a dataclass has one that is its fields alone, others refer elsewhere."""
    text = offered.__doc__ or ""
    return bool(text) and not text.startswith((f"{offered.__name__}(", "See "))


def test_the_example_runs():
    result = doctest.testmod(pliant)
    assert result.attempted > 5 and result.failed == 0


def test_the_example_of_the_readme_prints_what_the_readme_shows(capsys):
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    assert found
    exec(compile(found[1], "README.md", "exec"), {})
    assert capsys.readouterr().out == found[2]


def test_importing_it_loads_nothing_else_of_ours():
    code = "import sys, pliant; print([name for name in sys.modules if name.startswith('pliant.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_is_offered_is_listed_beside_what_is_there_already():
    listed = dir(pliant)
    assert listed == sorted(set(listed))
    assert {*pliant.__all__, "import_module"} <= set(listed)
