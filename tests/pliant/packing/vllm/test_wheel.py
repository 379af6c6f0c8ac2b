"""The small distribution is the core, which holds the scheduler in vLLM and whose decisions need numpy alone."""

from __future__ import annotations

import subprocess
import sys

from tests.fixtures.wheels import build, unpack


def test_without_vllm_its_decisions_need_numpy_alone(tmp_path):
    installed = unpack(build(tmp_path, "pliant-core", "pliant-vllm"), tmp_path / "installed")
    assert "Requires-Dist: pliant-core==" in next(installed.glob("pliant_vllm-*.dist-info/METADATA")).read_text()
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
