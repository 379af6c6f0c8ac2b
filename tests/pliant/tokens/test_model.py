"""The adaptive vision transformer: timm's features at gamma 0, and merging that agrees with a plain reference."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import timm
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from timm.models.vision_transformer import ParallelScalingBlock

from pliant.errors import BackboneError
from pliant.tokens.model import AdaptiveViT, create_vit, match, merge, merged_count, pack
from pliant.tokens.runtime import load_model
from tests.fixtures.tokens.samples import DEPTH, WIDTH, tiny_backbone

Array = NDArray[np.float64]


def tokens_per_layer(tokens: int, gamma: int, depth: int) -> list[int]:
    """Return the number of tokens inside the MLP of every layer at one gamma."""
    counts = []
    for _ in range(depth):
        if gamma < 0:
            tokens -= merged_count(tokens, -gamma)
        counts.append(tokens + max(gamma, 0))
    return counts


def reference(x_ND: Array, size_N: Array, key_NE: Array, wanted: int) -> tuple[Array, Array]:
    """One image, one layer: tokens and their sizes after merging, kept even tokens first, then all odd ones.

    1. Tokens are dealt alternately into two sets. 2. Each token of the first set draws one edge, to its most similar token
    of the second (cosine of the keys). 3. The `wanted` most similar edges are kept, at most half of the tokens. 4. Tokens
    that are still joined are averaged, weighted by size. The class token, number 0, draws no edge.
    """
    first, second = list(range(0, len(x_ND), 2)), list(range(1, len(x_ND), 2))
    edges = []
    for token in first[1:]:
        similar = {other: _cosine(key_NE[token], key_NE[other]) for other in second}
        if similar:
            other = max(second, key=lambda j: similar[j])
            edges.append((similar[other], token, other))
    most = (len(x_ND) - 1) // 2
    joined = {token: other for _, token, other in sorted(edges, reverse=True)[: min(wanted, most)]}
    tokens, sizes = [x_ND[i] for i in first if i not in joined], [size_N[i] for i in first if i not in joined]
    for other in second:
        group = [other, *(token for token in first if joined.get(token) == other)]
        total = sum(size_N[i] for i in group)
        tokens.append(sum(x_ND[i] * size_N[i] for i in group) / total)
        sizes.append(total)
    return np.array(tokens), np.array(sizes)


def _cosine(one: Array, other: Array) -> float:
    return float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))


@pytest.fixture(scope="module")
def model():
    return load_model(tiny_backbone())


@pytest.fixture(scope="module")
def images():
    return torch.randn(5, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def seen_tokens(model, run) -> list[torch.Tensor]:
    """Return the input of each layer's MLP."""
    seen: list[torch.Tensor] = []
    hooks = [
        block.mlp.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
        for block in model.vit.blocks
    ]
    with torch.no_grad():
        run()
    for hook in hooks:
        hook.remove()
    return seen


@torch.no_grad()
@pytest.mark.parametrize("packed", [False, True])
def test_gamma_zero_is_timms_own_features_to_five_digits_with_packed_weights_too(images, packed):
    model = load_model(tiny_backbone())
    plain = model.vit.forward_features(images)[:, 0]
    if packed:
        pack(model)
    assert (model(images) - plain).abs().max() < 1e-5


@pytest.mark.parametrize("prompts", [1, 2, 8])
def test_every_layer_sees_the_images_tokens_and_the_prompts_and_no_more(model, images, prompts):
    seen = seen_tokens(model, lambda: model(images, 0, torch.randn(5, DEPTH, prompts, WIDTH)))
    assert [x.shape[1] for x in seen] == [17 + prompts] * DEPTH == tokens_per_layer(17, prompts, DEPTH)


@torch.no_grad()
def test_tokens_are_matched_by_their_keys_averaged_over_heads(model, images):
    """As in ToMe, section 3, they are matched between attention and MLP."""
    block, x = model.vit.blocks[0], model._embed(images)
    keys = block.attn.qkv(block.norm1(x))[..., WIDTH : 2 * WIDTH].unflatten(-1, (block.attn.num_heads, -1)).mean(2)
    attended = x + block.attn(block.norm1(x))
    expected, _ = merge(attended, torch.ones_like(x[..., :1]), match(keys, 5))
    tokens = seen_tokens(model, lambda: model(images, 5))[0]
    assert torch.allclose(tokens, block.norm2(expected), atol=1e-5)


@torch.no_grad()
def test_merging_equal_tokens_changes_nothing(model):
    """Attention counts a merged token as often as the tokens it stands for (ToMe, Eq. 1)."""
    torch.manual_seed(0)
    pos = model.vit.pos_embed.detach().clone()
    try:
        model.vit.pos_embed.data[:, 1:] = pos[:, 1:2]
        grey = torch.full((1, 3, 16, 16), 0.3)
        assert torch.allclose(model(grey, 6), model(grey), atol=1e-4)
    finally:
        model.vit.pos_embed.data = pos


@torch.no_grad()
@pytest.mark.parametrize("setting", [0, 3, -4])
def test_an_image_is_not_changed_by_its_neighbours_in_the_batch(model, images, setting):
    prompts = torch.randn(5, DEPTH, 3, WIDTH) if setting > 0 else None
    together = model(images, max(-setting, 0), prompts)
    for i in range(5):
        alone = model(images[i : i + 1], max(-setting, 0), None if prompts is None else prompts[i : i + 1])
        assert torch.allclose(alone[0], together[i], atol=1e-5)


@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        ("vit_tiny_patch16_224", {"global_pool": "avg", "depth": 1}),
        ("deit_tiny_distilled_patch16_224", {"depth": 1}),
        ("resnet18", {}),
    ],
)
def test_a_net_whose_features_would_be_wrong_is_refused(architecture, options):
    """Such a net was once accepted and gave the features of an untrained token."""
    net = timm.create_model(architecture, num_classes=0, **options)
    with pytest.raises(BackboneError, match="class token alone"):
        AdaptiveViT(net)


@pytest.mark.parametrize("options", [{"scale_attn_norm": True}, {"block_fn": ParallelScalingBlock}])
def test_blocks_that_compute_more_than_the_plain_ones_are_refused(options):
    """Such blocks were once accepted, and the features lacked what they add."""
    with pytest.raises(BackboneError, match="plain transformer blocks"):
        AdaptiveViT(create_vit("vit_tiny_patch16_224", {"depth": 1, **options}))


def drawn(rng: np.random.Generator, tokens: int, width: int):
    """Return tokens, their sizes and their keys."""
    return rng.normal(size=(tokens, width)), rng.integers(1, 6, tokens).astype(float), rng.normal(size=(tokens, 8))


@given(st.integers(2, 70), st.integers(1, 12), st.integers(1, 80), st.integers(0, 2**32 - 1))
def test_merging_agrees_with_the_reference_and_conserves_what_is_merged_at_every_shape_and_count(
    tokens, width, wanted, seed
):
    x, size, key = drawn(np.random.default_rng(seed), tokens, width)
    assume(merged_count(tokens, wanted) > 0)
    x_1ND, size_1N1, key_1NE = (torch.tensor(array, dtype=torch.float32)[None] for array in (x, size[:, None], key))
    out_1ND, sizes_1N1 = merge(x_1ND, size_1N1, match(key_1NE, merged_count(tokens, wanted)))
    out, sizes = out_1ND[0].double().numpy(), sizes_1N1[0, :, 0].double().numpy()
    expected, expected_sizes = reference(x, size, key, wanted)
    assert np.allclose(out, expected, atol=1e-5) and np.array_equal(sizes, expected_sizes)
    assert sizes.sum() == size.sum() and np.allclose(sizes @ out, size @ x, atol=1e-5 * tokens)
    assert np.allclose(out[0], x[0], atol=1e-5) and sizes[0] == size[0], "the class token survives unmerged"
    assert 2 * (tokens - len(out)) <= tokens - 1, "at most half of the tokens go"


@given(st.integers(1, 4), st.integers(3, 40), st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_a_batch_is_merged_like_its_images_one_by_one(batch, tokens, wanted, seed):
    rng = np.random.default_rng(seed)
    images = [drawn(rng, tokens, 6) for _ in range(batch)]
    x, size, key = (torch.tensor(np.stack(column), dtype=torch.float32) for column in zip(*images, strict=True))
    out, sizes = merge(x, size[..., None], match(key, merged_count(tokens, wanted)))
    for image, (x_ND, size_N, key_NE) in enumerate(images):
        expected, expected_sizes = reference(x_ND, size_N, key_NE, wanted)
        assert np.allclose(out[image], expected, atol=1e-5)
        assert np.array_equal(sizes[image, :, 0], expected_sizes)


def test_half_precision_tokens_are_averaged_in_float32():
    """Sizes of up to 600 tokens are no bfloat16 numbers; the average of equal tokens is that token."""
    x, size = torch.full((1, 5, 3), 1.5, dtype=torch.bfloat16), torch.full((1, 5, 1), 301.0)
    out, sizes = merge(x, size, match(torch.randn(1, 5, 4), 2))
    assert (out.dtype, sizes.dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(out, x[:, :3])
    assert sizes.sum() == 5 * 301


@pytest.mark.parametrize(("gamma", "last"), [(-5, 137), (-10, 77), (-15, 17), (-20, 4), (0, 197), (8, 205)])
def test_a_vit_of_197_tokens_and_12_layers_ends_with_the_published_counts(gamma, last):
    assert tokens_per_layer(197, gamma, 12)[-1] == last


@torch.no_grad()
def test_lora_is_a_change_of_the_weights_and_shallow_prompts_are_tokens_like_others():
    """Both per sample: LoRA beside nets whose weights are changed, prompts beside tokens put in by hand."""
    torch.manual_seed(0)
    model, images = load_model(tiny_backbone()), torch.randn(2, 3, 16, 16)
    low_BLRE = 0.1 * torch.randn(2, model.depth, 3, 4 * model.width)
    tuned_BD = model(images, 0, low_BLRE)
    for sample in range(2):
        changed = deepcopy(model)
        for layer, block in enumerate(changed.vit.blocks):
            down_RD, up_RE = low_BLRE[sample, layer].split([model.width, 3 * model.width], dim=-1)
            block.attn.qkv.weight += (down_RD.T @ up_RE).T
        torch.testing.assert_close(tuned_BD[sample], changed(images)[sample], atol=1e-4, rtol=1e-3)
    prompts_BLGD = torch.randn(2, 1, 5, model.width)
    vit = model.vit
    x_BND = vit._pos_embed(vit.patch_embed(images))
    x_BND = torch.cat([x_BND[:, :1], prompts_BLGD[:, 0], x_BND[:, 1:]], dim=1)
    expected_BD = vit.norm(vit.blocks(x_BND))[:, 0]
    torch.testing.assert_close(model(images, 0, prompts_BLGD), expected_BD, atol=1e-4, rtol=1e-3)
