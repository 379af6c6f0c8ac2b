"""The small distribution is the core, which holds the scheduler in vLLM and whose decisions need numpy alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.fixtures.wheels import build, unpack


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheels")
    return unpack(build(folder, "pliant-core", "pliant-vllm"), folder / "installed")


def test_it_brings_no_file_of_its_own_and_the_core_no_other_folders_than_its_own(installed):
    assert "Requires-Dist: pliant-core==" in next(installed.glob("pliant_vllm-*.dist-info/METADATA")).read_text()
    assert (installed / "pliant/packing/vllm/adapter.py").is_file() and not (installed / "pliant/serving").exists()
    assert len(list(installed.iterdir())) == 3


def test_without_vllm_its_decisions_need_numpy_alone(installed, tmp_path):
    modules = ("decisions", "settings", "forecasts", "journal")
    program = f"""
import sys
sys.path.insert(0, {str(installed)!r})
import {", ".join(f"pliant.packing.vllm.{name}" for name in modules)}
import pliant
assert pliant.__file__.startswith({str(installed)!r}), pliant.__file__
places = {{name.split(".")[0]: getattr(module, "__file__", "") or "" for name, module in sys.modules.items()}}
third = {{name for name, place in places.items() if "site-packages" in place}}
print(sorted(name for name in third if not name.startswith(("_distutils_hack", "__editable__", "sitecustomize"))))
"""
    command = [sys.executable, "-P", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, env={"PATH": ""})
    assert done.stdout.strip() == "['numpy']", done.stdout + done.stderr
