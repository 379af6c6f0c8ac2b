"""The small distribution holds what the scheduler in vLLM and its predictor's process need, and needs numpy alone."""

from __future__ import annotations

import subprocess
import sys
import zipfile

import pytest

from tests.fixtures.packing.vllm_environment import unpack
from tests.fixtures.packing.vllm_wheel import ROOT, build


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(tmp_path_factory.mktemp("wheel"))


def names(wheel) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if ".dist-info/" not in name]


def test_it_holds_the_scheduler_and_its_predictor_and_little_else(wheel):
    held = set(names(wheel))
    own = {f"pliant/packing/vllm/{path.name}" for path in (ROOT / "pliant/packing/vllm").glob("*.py")}
    assert own | {"pliant/serving/packing/engine/vllm_predictor_device.py", "pliant/registry/codec.py"} <= held
    assert not [
        name
        for name in held
        if name.startswith(("pliant/tokens", "pliant/bins", "pliant/cascade", "pliant/registry/mlflow"))
    ]
    assert len(held) < 60


def test_without_vllm_its_decisions_need_numpy_alone(wheel, tmp_path):
    modules = ("decisions", "settings", "forecasts", "journal")
    program = f"""
import sys
sys.path.insert(0, {str(unpack(wheel, tmp_path))!r})
import {", ".join(f"pliant.packing.vllm.{name}" for name in modules)}
import pliant
assert pliant.__file__.startswith({str(tmp_path)!r}), pliant.__file__
places = {{name.split(".")[0]: getattr(module, "__file__", "") or "" for name, module in sys.modules.items()}}
third = {{name for name, place in places.items() if "site-packages" in place}}
print(sorted(name for name in third if not name.startswith(("_distutils_hack", "__editable__", "sitecustomize"))))
"""
    command = [sys.executable, "-P", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, env={"PATH": ""})
    assert done.stdout.strip() == "['numpy']", done.stdout + done.stderr
