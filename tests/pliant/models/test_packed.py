"""Packed linear layers give the same results as plain ones, for calls of few and of many rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from pliant.models.packed import PackedLinear, can_pack
from pliant.tokens.runtime import Execution, Payload, TokensRuntime
from tests.fixtures.tokens.samples import random_images, tiny_backbone, tiny_task

pytestmark = pytest.mark.skipif(not can_pack(), reason="oneDNN's linear layers are for x86")


@torch.no_grad()
@pytest.mark.parametrize("rows", [(1,), (3, 7), (8, 65), (2, 5, 200)])
@pytest.mark.parametrize(("inside", "outside"), [(96, 288), (24, 96), (1024, 1024)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_packed_layer_gives_what_the_plain_one_gives(rows, inside, outside, bias):
    torch.manual_seed(0)
    layer, x = nn.Linear(inside, outside, bias=bias), torch.randn(*rows, inside)
    assert torch.allclose(PackedLinear(layer)(x), layer(x), atol=1e-5)
    assert torch.allclose(PackedLinear(layer, "gelu")(x), nn.GELU()(layer(x)), atol=1e-5)


@pytest.mark.parametrize("gamma", [-20, -5, 0, 8])
def test_a_runtime_answers_the_same_with_and_without(gamma):
    task = tiny_task("a", "xyz", "digest")
    payloads = [Payload("a", image) for image in random_images(7)]
    with_packing, without = (
        TokensRuntime(tiny_backbone(), "digest", [task], execution=Execution(packed=packed)).run(gamma, payloads)
        for packed in (True, False)
    )
    assert all(
        np.allclose(x, y, atol=1e-5) for x, y in zip(with_packing.probabilities, without.probabilities, strict=True)
    )


def test_other_processors_than_x86_and_builds_without_onednn_pack_nothing(monkeypatch):
    assert can_pack() is True
    with monkeypatch.context() as other:
        other.setattr("pliant.models.packed.platform.machine", lambda: "arm64")
        assert not can_pack()
    with monkeypatch.context() as other:
        other.setattr(torch.backends.mkldnn, "is_available", lambda: False)
        assert not can_pack()
