"""The real installer makes a real environment, in which vLLM generates a text. Some gigabytes, so it is slow."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from pliant.errors import PliantError
from serving.packing.vllm import engine, install, packages
from tests.fixtures.places import ROOT

UNAVAILABLE = ("could not be read", "the package index lacks", "has no builds", "free disk space", "no vLLM for")
"""What a sentence holds that says why nothing can be installed here."""


@pytest.mark.slow
def test_vllm_is_installed_and_generates_a_text(tmp_path):
    try:
        packages.uv()
        install.check_space(tmp_path, "cpu")
    except PliantError as error:
        pytest.skip(str(error))
    variables = {**os.environ, "PLIANT_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT), "UV_HTTP_RETRIES": "0"}
    command = [sys.executable, "-m", "cli", "engine"]

    def run(*words):
        return subprocess.run(
            [*command, *words], capture_output=True, text=True, env=variables, cwd=tmp_path, timeout=1800
        )

    first = run("install", "vllm", "--device", "cpu")
    if first.returncode == 2 and any(words in first.stderr for words in UNAVAILABLE):
        pytest.skip(first.stderr.splitlines()[-1])
    assert first.returncode == 0, first.stderr
    assert "downloading vLLM: " in first.stderr and "generating a text: done" in first.stderr
    assert engine.damage(engine.folder(tmp_path / "home")) == ""
    again = run("install", "vllm", "--device", "cpu")
    assert again.returncode == 0 and "nothing to do" in again.stderr and again.stdout == first.stdout
    code = "import json, sys, pliant; pliant.PackingScheduler; print(json.dumps([*sys.modules]))"
    home = tmp_path / "home"
    shown = subprocess.run(
        [engine.python_of(home), "-c", code],
        capture_output=True,
        text=True,
        env=engine.environment_of(home),
        check=True,
    )
    assert not {"torch", "scipy", "cli", "serving"} & {name.partition(".")[0] for name in json.loads(shown.stdout)}
    assert run("remove", "vllm").returncode == 0
    assert not engine.folder(home).exists()
