"""What the flow of packing looks at before all work."""

from __future__ import annotations

import pytest
from transformers import MambaConfig

from flows.packing.config import read
from flows.packing.stages import load_corpus
from pliant.errors import InputError
from training.loading import POINTER


def test_a_spoilt_encoder_of_the_predictor_is_refused_before_the_generator_is_trained(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(POINTER)
    with pytest.raises(InputError, match=r"model\.safetensors is a pointer of Git LFS"):
        load_corpus(read(overrides={"predictor": f"path:{tmp_path}"}))


def test_a_generator_that_the_engine_cannot_run_is_refused_before_any_work(tmp_path):
    MambaConfig().save_pretrained(tmp_path)
    with pytest.raises(InputError, match="whose MambaForCausalLM keeps a state outside of attention"):
        load_corpus(read(overrides={"generator": f"path:{tmp_path}"}))
