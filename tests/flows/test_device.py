"""What the device cannot do is told before anything is trained."""

import pytest
import torch

from flows.bins.flow import bins
from flows.cascade.flow import cascade
from flows.device import check_device
from flows.packing.flow import packing
from flows.tokens.config import TokensFlowConfig
from flows.tokens.flow import tokens
from pliant.device import device_class
from pliant.errors import InputError


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
def test_a_missing_device_is_refused_before_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="device is cuda"):
        tokens.fn(None, {"device": "cuda"})
    assert not list(tmp_path.rglob("*.safetensors"))


@pytest.mark.parametrize(
    ("flow", "overrides", "field"),
    [
        (tokens, {"task": {"precision": "bfloat16"}}, "task.precision"),
        (tokens, {"foundation": {"precision": "bfloat16"}}, "foundation.precision"),
        (bins, {"embedded": {"classifier": {"precision": "bfloat16"}}}, "embedded.classifier.precision"),
        (cascade, {"levels": [{"name": "a"}, {"name": "b", "classifier": {"precision": "bfloat16"}}]}, r"levels\[1\]."),
        (packing, {"embedded": {"precision": "bfloat16"}}, "embedded.precision"),
    ],
)
def test_bfloat16_without_instructions_is_refused_before_training(tmp_path, monkeypatch, flow, overrides, field):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pliant.precision.has_bfloat16", lambda device: False)
    with pytest.raises(InputError, match=f"{field}.* is bfloat16, but must be float32 here"):
        flow.fn(None, overrides)
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_device_that_can_is_named():
    config = TokensFlowConfig(threads=torch.get_num_threads())
    assert check_device(config) == device_class("cpu")
