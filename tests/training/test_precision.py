"""Training in lower precision: "auto" depends on the device, and bfloat16 is refused where it is missing."""

from __future__ import annotations

import pytest
import torch

from pliant.errors import InputError
from pliant.training.precision import lowered

CPU = torch.device("cpu")


def product() -> torch.dtype:
    return (torch.ones(4, 4) @ torch.ones(4, 4)).dtype


@pytest.mark.parametrize(("there", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_auto_is_bfloat16_only_where_the_processor_has_it(monkeypatch, there, dtype):
    monkeypatch.setattr("pliant.training.precision.has_bfloat16", lambda device: there)
    with lowered("auto", CPU):
        assert product() == dtype
    with lowered("float32", CPU):
        assert product() == torch.float32


def test_bfloat16_is_refused_where_the_processor_lacks_it(monkeypatch):
    monkeypatch.setattr("pliant.precision.has_bfloat16", lambda device: False)
    with pytest.raises(InputError, match="precision is bfloat16, but must be float32 here"):
        lowered("bfloat16", CPU)
