"""How much code there is: no more than was reached. To raise a budget takes an entry in the log: by how much, what for.

The aim is 48,000 lines of product, 9,000 of benchmarks and 50,000 of tests, those of qa/ among them.
"""

from __future__ import annotations

import subprocess

import pytest

from tests.fixtures.places import ROOT

BUDGETS = {
    ("pliant", "training", "profiling", "registry", "serving", "flows", "cli"): 73_400,
    ("benchmarks",): 12_050,
    ("tests", "qa"): 67_900,
}


@pytest.mark.parametrize("folders", BUDGETS)
def test_the_code_keeps_within_its_budget(folders):
    listed = subprocess.run(["git", "ls-files", "-z", *folders], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("this is no checkout of git, which says which files are tracked")
    files = [ROOT / name for name in listed.stdout.split("\0") if name.endswith(".py")]
    assert sum(file.read_bytes().count(b"\n") for file in files if file.is_file()) <= BUDGETS[folders]
