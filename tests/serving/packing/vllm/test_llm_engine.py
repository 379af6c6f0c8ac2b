"""What vLLM is started with, by a stand-in for it."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pliant.packing.scheduling.request import Memory


def test_grammars_are_left_to_the_library_by_which_the_service_tries_them(monkeypatch):
    started: list[Any] = []
    fakes = {
        "vllm": SimpleNamespace(
            EngineArgs=lambda model, **options: options, LLMEngine=SimpleNamespace(from_engine_args=started.append)
        ),
        "vllm.config": SimpleNamespace(StructuredOutputsConfig=lambda **options: options),
        "pliant.packing.vllm.adapter": SimpleNamespace(
            Embedding=object, PliantScheduler=object, embedded=lambda embedding: embedding
        ),
    }
    for name, fake in fakes.items():
        monkeypatch.setitem(sys.modules, name, fake)
    monkeypatch.delitem(sys.modules, "pliant.serving.packing.vllm.running", raising=False)
    module = import_module("pliant.serving.packing.vllm.running")
    monkeypatch.delitem(sys.modules, "pliant.serving.packing.vllm.running")
    module.llm_engine(Path("model"), 64, Memory(8, 4), "ours", "float32", True)
    (options,) = started
    assert options["structured_outputs_config"] == {"backend": "guidance"}
    assert options["scheduler_cls"] == "ours"
