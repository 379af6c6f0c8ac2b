"""The backbone: a small one is trained from the images that it may see, others come from files or the hub."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file

from pliant.errors import InputError, OfflineError
from pliant.tokens.runtime import load_model
from pliant.training import data
from pliant.training.tokens.foundation import FoundationConfig, from_file, from_timm, pretrain
from tests.fixtures.watched import watched

TINY = FoundationConfig(
    options={"img_size": 16, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 2},
    images=640,
    batch=64,
    precision="float32",
)


@pytest.fixture(scope="module")
def foundation():
    return pretrain(TINY, data.digits("digit"))


def test_a_seed_gives_the_same_foundation_again(foundation):
    again = pretrain(TINY, data.digits("digit"))
    assert all(np.array_equal(foundation.weights[name], again.weights[name]) for name in foundation.weights)
    other = pretrain(replace(TINY, seed=1), data.digits("digit"))
    assert not all(np.array_equal(foundation.weights[name], other.weights[name]) for name in foundation.weights)


def test_only_fit_images_of_the_upstream_classes_are_looked_at():
    digits, seen = watched(data.digits("digit"))
    pretrain(replace(TINY, images=64, upstream_classes=3), digits)
    assert seen
    assert set(seen) <= set(digits.split.fit.tolist())
    assert set(digits.labels[sorted(seen)]) == {0, 1, 2}


def test_a_foundation_loads_as_it_was_trained_without_the_patch_dropout(foundation):
    model = load_model(foundation)
    images = torch.randn(2, 3, 16, 16)
    assert torch.equal(model(images), model(images))
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert foundation.image_size == 16


def test_pretrained_weights_out_of_reach_name_what_works_without_them():
    with pytest.raises(
        OfflineError, match=r"weights of vit_tiny_patch16_224 could not be fetched.*without a network use"
    ):
        from_timm("vit_tiny_patch16_224")


def test_weights_from_a_file_come_back_as_they_are_with_the_classifier_passed_over(tmp_path):
    torch.manual_seed(0)
    vit = timm.create_model("vit_tiny_patch16_224")
    save_file(vit.state_dict(), tmp_path / "vit.safetensors")
    backbone = from_file("vit_tiny_patch16_224", str(tmp_path / "vit.safetensors"))
    assert (backbone.image_size, len(backbone.mean), len(backbone.std)) == (224, 3, 3)
    images = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        assert torch.allclose(load_model(backbone)(images), vit.eval().forward_features(images)[:, 0], atol=1e-4)


def test_weights_for_another_size_have_their_positions_resampled_as_timm_does(tmp_path):
    torch.manual_seed(0)
    vit = timm.create_model("vit_tiny_patch16_224", num_classes=0)
    save_file(vit.state_dict(), tmp_path / "vit.safetensors")
    backbone = from_file("vit_tiny_patch16_224", str(tmp_path / "vit.safetensors"), 96)
    vit.set_input_size(img_size=96)
    images = torch.randn(1, 3, 96, 96)
    with torch.no_grad():
        assert torch.allclose(load_model(backbone)(images), vit.eval()(images), atol=1e-3)
    assert backbone.image_size == 96
    with pytest.raises(InputError, match="image_size is 100, but must be a multiple of the patches' 16 pixels"):
        from_file("vit_tiny_patch16_224", str(tmp_path / "vit.safetensors"), 100)


def test_a_file_that_does_not_fit_is_refused_with_its_name(tmp_path):
    """A truncated file and one of another width once ended in a traceback."""
    truncated, other, partial = (tmp_path / name for name in ("t.safetensors", "o.safetensors", "p.safetensors"))
    save_file({"cls_token": torch.zeros(1, 1, 7)}, other)
    save_file({"cls_token": torch.zeros(1, 1, 192)}, partial)
    truncated.write_bytes(other.read_bytes()[:20])
    for path, limit in (
        (truncated, "a readable safetensors file"),
        (other, "the weights of vit_tiny_patch16_224"),
        (partial, "the weights of vit_tiny_patch16_224; pos_embed is missing"),
        (tmp_path / "none", "a readable safetensors file"),
    ):
        with pytest.raises(InputError, match=f"backbone is .*{path.name}, but must be {limit}"):
            from_file("vit_tiny_patch16_224", str(path))
