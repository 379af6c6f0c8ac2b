"""A device that is not there is told before anything is trained."""

import pytest
import torch

from flows.tokens_flow import tokens
from pliant.errors import InputError


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device")
def test_a_missing_device_is_refused_before_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="device is cuda"):
        tokens.fn(None, {"device": "cuda"})
    assert not list(tmp_path.rglob("*.safetensors"))
