"""A generator is written for vLLM once and whole, or not at all."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path

import pytest

from pliant.errors import ArtifactError, WorkerError
from pliant.packing.vllm import folder_of
from pliant.serving.packing.vllm.model_folder import WEIGHTS, write
from tests.fixtures.packing.published import generator


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
