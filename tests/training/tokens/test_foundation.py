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
from pliant.training.tokens.foundation import FoundationConfig, from_file, from_timm, positions, pretrain, warm_cosine
from tests.fixtures.processor import NEEDS_BFLOAT16
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
    assert seen <= set(digits.split.fit.tolist())
    assert set(digits.labels[sorted(seen)]) == {0, 1, 2}


def test_a_foundation_loads_as_it_was_trained_without_the_patch_dropout(foundation):
    model = load_model(foundation)
    images = torch.randn(2, 3, 16, 16)
    assert torch.equal(model(images), model(images))
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert foundation.image_size == 16


def test_progress_counts_every_step():
    reports = []
    pretrain(
        replace(TINY, images=192), data.digits("digit"), progress=lambda done, total: reports.append((done, total))
    )
    assert reports == [(1, 3), (2, 3), (3, 3)]


def test_too_few_upstream_images_are_refused():
    with pytest.raises(InputError, match="images of the upstream classes, but must be at least 4096"):
        pretrain(replace(TINY, batch=4096), data.digits("digit"))


@pytest.mark.slow
def test_pretraining_makes_upstream_classes_linearly_separable():
    digits = data.digits("digit")
    before, after = (features(pretrain(replace(TINY, images=n), digits), digits) for n in (64, 12_800))
    assert after > before + 0.1


def features(backbone, digits) -> float:
    """Return the accuracy of a linear classifier on the features, on upstream images that were not trained on."""
    from sklearn.linear_model import LogisticRegression

    def of(part):
        part = part[digits.labels[part] < 5]
        pixels = torch.from_numpy(digits.images.batch(part, 16)).permute(0, 3, 1, 2).float() / 255
        with torch.no_grad():
            return load_model(backbone)((pixels - backbone.mean[0]) / backbone.std[0]).numpy(), digits.labels[part]

    return LogisticRegression(max_iter=200).fit(*of(digits.split.fit)).score(*of(digits.split.profiling))


def test_positions_are_bounded_and_differ_from_place_to_place():
    table = positions(8, 96)
    assert table.shape == (64, 96)
    assert table.abs().max() <= 1
    assert len({tuple(row) for row in table.round(decimals=4).tolist()}) == 64


def test_the_rate_rises_then_falls_to_nothing():
    rates = [warm_cosine(step, 100, 10) for step in range(101)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == max(rates[8:12])
    assert rates[100] == pytest.approx(0.0, abs=1e-12)


@NEEDS_BFLOAT16
def test_lowered_precision_gives_nearly_the_same_weights_in_float32(foundation):
    lowered = pretrain(replace(TINY, precision="bfloat16"), data.digits("digit")).weights
    assert all(w.dtype == np.float32 for w in lowered.values())
    apart = np.concatenate([(lowered[name] - w).ravel() for name, w in foundation.weights.items()])
    assert 0 < np.abs(apart).mean() < 0.01


@pytest.mark.parametrize("changes", [{"augment": "crops"}, {"warmup": 3}, {"label_smoothing": 0.3}])
def test_each_way_to_train_gives_another_foundation(foundation, changes):
    other = pretrain(replace(TINY, **changes), data.digits("digit"))
    assert not np.array_equal(other.weights["cls_token"], foundation.weights["cls_token"])


def test_pretrained_weights_out_of_reach_name_what_works_without_them():
    with pytest.raises(
        OfflineError, match=r"weights of vit_tiny_patch16_224 could not be fetched.*without a network use"
    ):
        from_timm("vit_tiny_patch16_224")


@pytest.mark.parametrize("make", [from_timm, lambda name: from_file(name, "nowhere.safetensors")])
def test_an_architecture_that_timm_does_not_know_is_not_blamed_on_the_network(make):
    """It was once reported as a failed download, or ended in a traceback."""
    with pytest.raises(InputError, match="architecture is vit_enormous, but must be one that timm knows"):
        make("vit_enormous")


def test_weights_from_a_file_come_back_as_they_are_with_the_classifier_passed_over(tmp_path):
    torch.manual_seed(0)
    vit = timm.create_model("vit_tiny_patch16_224")
    save_file(vit.state_dict(), tmp_path / "vit.safetensors")
    backbone = from_file("vit_tiny_patch16_224", str(tmp_path / "vit.safetensors"))
    assert (backbone.image_size, len(backbone.mean), len(backbone.std)) == (224, 3, 3)
    images = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        assert torch.allclose(load_model(backbone)(images), vit.eval().forward_features(images)[:, 0], atol=1e-4)


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
