"""The adaptive vision transformer: timm's own features at gamma 0, the right number of tokens at every other gamma."""

from __future__ import annotations

import pytest
import timm
import torch
from timm.models.vision_transformer import ParallelScalingBlock
from torch import nn

from pliant.errors import BackboneError
from pliant.models.packed import PackedLinear, can_pack
from pliant.tokens.merge import match, merge
from pliant.tokens.model import AdaptiveViT, create_vit, pack
from pliant.tokens.runtime import load_model
from tests.fixtures.tokens.merging import tokens_per_layer
from tests.fixtures.tokens.samples import DEPTH, WIDTH, tiny_backbone


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
def test_a_layers_prompts_replace_those_of_the_layer_before(model, images):
    """A layer's prompts act through attention; their outputs are not passed to the next layer."""
    prompts = torch.randn(5, DEPTH, 4, WIDTH)
    inputs: list[torch.Tensor] = []
    hook = model.vit.blocks[1].norm1.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    model(images, 0, prompts)
    hook.remove()
    assert torch.equal(inputs[0][:, 1:5], prompts[:, 1])


@pytest.mark.parametrize("merged", [1, 5, 20])
def test_merging_leaves_each_layer_the_tokens_that_were_counted(model, images, merged):
    seen = seen_tokens(model, lambda: model(images, merged))
    assert [x.shape[1] for x in seen] == tokens_per_layer(17, -merged, DEPTH)


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
def test_left_out_sizes_are_those_of_attention_alone(model, images):
    """Averages stay weighted, and before the first merge there are no sizes to leave out."""
    with_sizes, without = (seen_tokens(model, lambda p=p: model(images, 5, None, p)) for p in (True, False))
    assert torch.equal(with_sizes[0], without[0])
    assert not torch.allclose(with_sizes[1], without[1], atol=1e-3)
    assert torch.equal(model(images, 0, None, False), model(images))


@torch.no_grad()
@pytest.mark.parametrize("setting", [0, 3, -4])
def test_bfloat16_on_a_cpu_gives_nearly_the_same_features(model, images, setting):
    prompts = torch.randn(5, DEPTH, 3, WIDTH) if setting > 0 else None
    half = load_model(tiny_backbone()).bfloat16()
    exact = model(images, max(-setting, 0), prompts)
    features = half(images.bfloat16(), max(-setting, 0), None if prompts is None else prompts.bfloat16())
    assert features.dtype == torch.bfloat16
    assert torch.nn.functional.cosine_similarity(features.float(), exact).min() > 0.98


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


@pytest.mark.parametrize(
    ("part", "value"), [("gate", torch.nn.Identity()), ("norm", torch.nn.LayerNorm(24)), (None, None)]
)
def test_attention_that_does_more_than_the_plain_one_is_refused(part, value):
    vit = create_vit(
        "vit_tiny_patch16_224", {"img_size": 16, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 2}
    )
    if part is None:
        del vit.blocks[1].attn
    else:
        setattr(vit.blocks[1].attn, part, value)
    with pytest.raises(BackboneError, match="plain transformer blocks"):
        AdaptiveViT(vit)


def test_attention_of_a_timm_that_knows_no_gates_is_plain_and_a_gated_one_is_refused():
    """timm up to 1.0.24 has no `gate`, and every backbone failed there with an AttributeError."""
    vit = create_vit("test_vit", {})
    for block in vit.blocks:
        if hasattr(block.attn, "gate"):
            del block.attn.gate
    assert AdaptiveViT(vit).depth == len(vit.blocks)
    vit.blocks[0].attn.gate = torch.nn.Linear(2, 2)
    with pytest.raises(BackboneError, match="must be timm's plain transformer blocks"):
        AdaptiveViT(vit)


@pytest.mark.skipif(not can_pack(), reason="this processor or build of torch has no packed layers")
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_all_blocks_are_packed_and_only_the_exact_gelu_is_computed_with_its_layer(approximate):
    model = load_model(tiny_backbone())
    for block in model.vit.blocks:
        block.mlp.act = nn.GELU(approximate)
    pack(model)
    layers = [layer for b in model.vit.blocks for layer in (b.attn.qkv, b.attn.proj, b.mlp.fc1, b.mlp.fc2)]
    assert layers and all(isinstance(layer, PackedLinear) for layer in layers)
    fused = [isinstance(block.mlp.act, nn.Identity) for block in model.vit.blocks]
    assert fused == [approximate == "none"] * len(model.vit.blocks)
