"""The engine writes as plain transformers does, or a generator is refused by name with the reason."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from pliant.errors import InputError
from pliant.packing.engine.model import new_encoder
from pliant.packing.engine.page_attention import PageBatch
from pliant.training.packing import architecture
from pliant.training.packing.comparison import compare
from pliant.training.packing.generator import load
from pliant.training.packing.predictor import read_encoder as read
from tests.fixtures.architectures import GENERATING, tiny_config, written

EVERY = tuple(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) if os.environ.get("PLIANT_ALL_ARCHITECTURES") else ()
"""All that transformers has, where the environment asks for them: most of them are refused."""
SAME = (
    "apertus", "bert", "biogpt", "cohere", "ctrl", "ernie4_5_moe", "gemma", "glm4", "gpt2", "gpt_bigcode", "gpt_neox",
    "granitemoe", "llama", "olmo2", "opt", "persimmon", "phi", "qwen2_moe", "qwen3", "smollm3",
)  # fmt: skip
REFUSED = {
    "bart": "takes no position_ids",
    "bloom": "computes its attention by itself",
    "doge": "writes a text with a prompt of 4 tokens otherwise alone, from token 9 on",  # it has a mask of its own
    "falcon_h1": "keeps a state outside of attention",
    "gemma2": "has layers of sliding_attention",
    "hunyuan_v1_moe": "cannot be run by the engine",
    "jetmoe": "does not run in pages: a key or value of the model is 2 heads of 16 numbers",
    "llama4_text": "has layers of chunked_attention",
    "mamba": "keeps a state outside of attention",
    "nemotron": "called without what the model was called with",
    "mistral": "does not run in pages: the model's attention is one with sliding_window",
}
ORIGINAL = {"original_max_position_embeddings": 24}
FACTORS = {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
LONGROPE: dict[str, Any] = {
    "rope_parameters": {"rope_type": "longrope", "rope_theta": 10000.0, **FACTORS, **ORIGINAL},
    "sliding_window": None,
    **ORIGINAL,
}

pytestmark = pytest.mark.slow


def write(folder: Path, kind: str, **changes: Any) -> str:
    """Write a tiny random model of this kind; return its folder."""
    written(folder, AutoModelForCausalLM, tiny_config(kind, **{**GENERATING, **changes}))
    return str(folder)


def check(folder: str, precision: str = "float32") -> None:
    compare(folder, load(f"path:{folder}", precision))


@pytest.mark.parametrize("kind", SAME)
def test_the_engine_writes_as_transformers_does(kind, tmp_path):
    check(write(tmp_path, kind))


@pytest.mark.parametrize(
    ("kind", "precision"), [("llama", "bfloat16"), ("llama", "float16"), ("ernie4_5_moe", "bfloat16")]
)
def test_rounding_alone_is_no_difference(kind, precision, tmp_path):
    check(write(tmp_path, kind), precision)


@pytest.mark.parametrize("kind", REFUSED)
def test_what_would_write_otherwise_is_refused_with_the_reason(kind, tmp_path):
    with pytest.raises(InputError, match=f"generator is .*{re.escape(REFUSED[kind])}"):
        check(write(tmp_path, kind))


def test_positions_that_depend_on_the_longest_text_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"positions \(longrope\) that change .* unless max_position_embeddings"):
        check(write(tmp_path / "long", "phi3", **LONGROPE))
    check(write(tmp_path / "short", "phi3", **LONGROPE, max_position_embeddings=24))


@pytest.mark.parametrize(("kind", "changes", "where"), [
    ("llama4_text", {}, "alone"),
    ("olmo3", {}, "does not run in pages"),
    ("phi3", LONGROPE, "otherwise beside another text"),
    ("lfm2", {"layer_types": ["conv", "full_attention"]}, "called by 2 of 4 heads"),
])  # fmt: skip
def test_a_dropped_mask_or_position_is_a_difference_whatever_the_configuration_says(
    kind, changes, where, tmp_path, monkeypatch
):
    monkeypatch.setattr(architecture, "unserved", lambda kind, config: "")
    with pytest.raises(InputError, match=where):
        check(write(tmp_path, kind, **changes))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_token_that_is_not_attended_to_is_a_difference(precision, tmp_path, monkeypatch):
    folder, attend = write(tmp_path, "llama"), PageBatch.attend

    def forgetful(batch: PageBatch, layer: int, query: Any, key: Any, value: Any, scale: float | None) -> torch.Tensor:
        return attend(batch, layer, query, key, value * (torch.arange(value.shape[2]) > 0)[:, None], scale)

    generator = load(f"path:{folder}", precision)
    monkeypatch.setattr(PageBatch, "attend", forgetful)
    with pytest.raises(InputError, match="writes a text with a prompt of 4 tokens otherwise alone, from token 4 on"):
        compare(folder, generator)


def test_a_predictor_reads_with_an_encoder_without_sdpa_and_refuses_one_that_wants_two_texts(tmp_path):
    written(tmp_path / "mpnet", AutoModel, tiny_config("mpnet"))
    encoder, _ = read(f"path:{tmp_path / 'mpnet'}", 16)
    assert new_encoder(encoder.config.to_dict()).config._attn_implementation == "eager"
    written(tmp_path / "t5", AutoModel, tiny_config("t5"))
    with pytest.raises(InputError, match="whose T5Model cannot be run by token ids and a mask alone"):
        read(f"path:{tmp_path / 't5'}", 16)


@pytest.mark.parametrize("kind", EVERY)
def test_every_architecture_is_served_as_in_transformers_or_refused(kind, tmp_path):
    try:
        folder = write(tmp_path, kind)
    except Exception as error:  # its configuration wants other sizes
        pytest.skip(f"no tiny {kind}: {error}")
    try:
        check(folder)
    except InputError as error:
        pytest.xfail(str(error))
