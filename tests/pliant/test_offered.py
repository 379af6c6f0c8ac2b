"""What `import pliant` offers: every name is there, the example of the docstring runs, and importing it loads nothing."""

from __future__ import annotations

import doctest
import subprocess
import sys

import pytest

import pliant


@pytest.mark.parametrize("name", pliant.__all__)
def test_what_is_offered_is_there_and_says_what_it_is(name):
    assert getattr(pliant, name).__doc__
    assert f"`{name}`" in pliant.__doc__


def test_the_example_runs():
    result = doctest.testmod(pliant)
    assert result.attempted > 5 and result.failed == 0


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'pliant' has no attribute 'Chess'"):
        _ = pliant.Chess


def test_importing_it_loads_nothing_else_of_ours():
    code = "import sys, pliant; print([name for name in sys.modules if name.startswith('pliant.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
