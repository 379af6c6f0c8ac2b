"""The model of the trial is one that can be loaded: here transformers does, in place of vLLM."""

from __future__ import annotations

import json
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from serving.packing.vllm import trial


def test_the_model_and_its_tokenizer_write_a_text(tmp_path):
    trial.write_model(tmp_path / "model")
    model, report = AutoModelForCausalLM.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    ids = tokenizer(trial.PROMPT, return_tensors="pt").input_ids
    assert ids.tolist() == [[1, 2, 3, 4]]
    with torch.inference_mode():
        tokens = model.generate(ids, max_new_tokens=4, do_sample=False, pad_token_id=0)[0, 4:]
    assert tokenizer.decode(tokens)


class FakeVllm(ModuleType):
    def __init__(self):
        super().__init__("vllm")
        self.options = {}

    def SamplingParams(self, **options):  # noqa: N802
        return options

    def LLM(self, **options):  # noqa: N802
        self.options = options
        return self

    def generate(self, prompts, sampling, use_tqdm):
        assert not use_tqdm
        tokens = list(range(sampling["max_tokens"]))
        return [SimpleNamespace(outputs=[SimpleNamespace(text="w1 w2", token_ids=tokens)]) for _ in prompts]


@pytest.mark.parametrize(("device", "dtype"), [("cpu", "float32"), ("cuda", "auto")])
def test_the_last_line_says_what_was_written_by_which_versions(device, dtype, tmp_path, monkeypatch, capsys):
    fake = FakeVllm()
    monkeypatch.setitem(sys.modules, "vllm", fake)
    monkeypatch.setattr(trial, "version", lambda name: f"{name} 1")
    trial.main(tmp_path, device)
    document = json.loads(capsys.readouterr().out.splitlines()[-1].removeprefix(trial.MARK))
    assert (document["text"], document["tokens"], document["scheduler"]) == ("w1 w2", trial.TOKENS, "PackingScheduler")
    assert document["versions"]["torch"] == "torch 1"
    assert (fake.options["dtype"], fake.options["enforce_eager"]) == (dtype, True)
    assert ("kv_cache_memory_bytes" in fake.options) == (device == "cuda")
