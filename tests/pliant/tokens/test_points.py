"""Operating points: a slow, plain forward agrees, and a net or a point that cannot be right is refused by name."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
import torch

from pliant.benchmarks.launches import launches
from pliant.errors import BackboneError, InputError
from pliant.tokens import model as model_file
from pliant.tokens.model import AdaptiveViT, create_vit, pack
from pliant.tokens.points import (
    BOTH,
    CLASS,
    GOALS,
    LITTLE,
    MEAN,
    READS,
    Dimensions,
    Point,
    arithmetic,
    candidates,
    forwards,
    kept,
    merged_to,
    numbered,
)
from pliant.tokens.runtime import load_model
from tests.fixtures.tokens.samples import tiny_backbone
from tests.pliant.tokens.test_model import reference as merged_by_reference

VIT_S = Dimensions(size=224, patch=16, width=384, hidden=1536, depth=12)
DEEP = tiny_backbone(depth=4)


def pictures(size: int) -> torch.Tensor:
    return torch.randn(3, 3, size, size, generator=torch.Generator().manual_seed(size))


@torch.no_grad()
def slow(model: AdaptiveViT, point: Point, image_CHW: torch.Tensor) -> np.ndarray:
    """One image: timm's own net of that size, attention and merging written out, all tokens computed everywhere."""
    vit = deepcopy(model.vit)
    vit.set_input_size(img_size=(point.size, point.size))
    vit.double()
    x_ND = vit._pos_embed(vit.patch_embed(image_CHW[None].double()))[0]
    size_N = torch.ones(len(x_ND), dtype=torch.float64)
    if point.pooled:
        side = point.size // 4
        squares = [
            [r * side + c + 1 + at for at in (0, 1, side, side + 1)]
            for r in range(0, side, 2)
            for c in range(0, side, 2)
        ]
        x_ND = torch.stack([x_ND[0], *(x_ND[square].mean(0) for square in squares)])
        size_N = torch.tensor([1.0] + [4.0] * len(squares)).double()
    for layer, block in list(enumerate(vit.blocks))[: point.blocks]:
        heads, tokens = block.attn.num_heads, len(x_ND)
        q, k, v = block.attn.qkv(block.norm1(x_ND)).view(tokens, 3, heads, -1).unbind(1)
        score_HNN = torch.einsum("nhe,mhe->hnm", q, k) / q.shape[-1] ** 0.5 + size_N.log()
        x_ND = x_ND + block.attn.proj(torch.einsum("hnm,mhe->nhe", score_HNN.softmax(-1), v).flatten(1))
        if count := dict(point.merges).get(layer, 0):
            merged = merged_by_reference(x_ND.numpy(), size_N.numpy(), k.mean(1).numpy(), count)
            x_ND, size_N = (torch.from_numpy(array) for array in merged)
        x_ND = x_ND + block.mlp(block.norm2(x_ND))
    x_ND = vit.norm(x_ND)
    mean_D = sum(x * size for x, size in zip(x_ND[1:], size_N[1:], strict=True)) / size_N[1:].sum()
    return {CLASS: x_ND[0], MEAN: mean_D, BOTH: torch.cat([x_ND[0], mean_D])}[point.reads].numpy()


@torch.no_grad()
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "point",
    [
        *(Point(16, 4, reads=reads) for reads in READS),
        *(Point(16, 4, ((0, 3), (2, 4)), reads) for reads in READS),
        Point(8, 2, reads=BOTH),
        Point(24, 3, ((0, 9), (1, 4)), BOTH),
        Point(4, 1),
        Point(16, 4, reads=BOTH, pooled=True),
        Point(24, 3, ((0, 4),), MEAN, pooled=True),
        Point(20, 4, ((0, 2), (1, 11), (2, 5)), MEAN),
    ],
    ids=str,
)
def test_every_point_agrees_with_a_slow_plain_forward_of_each_image(point, packed):
    model = load_model(DEEP)
    if packed:
        pack(model)
    images = pictures(point.size)
    plain = load_model(DEEP)
    expected = np.stack([slow(plain, point, image) for image in images])
    assert np.allclose(model.at(point, images).numpy(), expected, atol=2e-5)


@torch.no_grad()
def test_a_plain_point_is_the_plain_net_and_merging_in_every_block_is_a_gamma():
    """What merges in the last block changes no class token."""
    model, images = load_model(DEEP), pictures(16)
    timms = model.vit.forward_features(images)
    both = torch.cat([timms[:, 0], timms[:, 1:].mean(1)], 1)
    assert torch.allclose(model.at(Point(16, 4, reads=BOTH), images), both, atol=1e-5)
    assert torch.allclose(model.at(Point(16, 4), images), model(images), atol=1e-5)
    assert torch.allclose(model.at(Point(16, 4, ((0, 3), (1, 3), (2, 3))), images), model(images, 3), atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize(
    "options", [{"no_embed_class": True}, {"init_values": 0.5, "qk_norm": True}, {"pre_norm": True}]
)
def test_other_plain_nets_run_as_timm_runs_them(options):
    torch.manual_seed(0)
    net = create_vit("vit_tiny_patch16_224", {"img_size": 32, "patch_size": 8, "depth": 2, **options}).eval()
    torch.nn.init.normal_(net.pos_embed)
    model, images = AdaptiveViT(net), pictures(48)
    bigger = deepcopy(net)
    bigger.set_input_size(img_size=48)
    assert torch.allclose(model.at(Point(48, 2), images), bigger.forward_features(images)[:, 0], atol=1e-5)


def test_positions_are_resampled_once_a_size_whoever_asks_first(monkeypatch):
    calls = []
    original = model_file.resample_abs_pos_embed
    monkeypatch.setattr(model_file, "resample_abs_pos_embed", lambda *a, **k: calls.append(a[1]) or original(*a, **k))
    model, images = load_model(DEEP), pictures(8).requires_grad_()
    with torch.inference_mode():
        before = model.at(Point(8, 4), images)
    after = model.at(Point(8, 4), images)
    after.sum().backward()
    assert calls == [[2, 2]] and torch.allclose(before, after)
    assert model.double().at(Point(8, 4), images.double()).dtype == torch.float64, "not those of another type"


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("size", {"size": 0}),
        ("blocks", {"blocks": 0}),
        ("merges", {"merges": ((2, 4), (1, 4))}),
        ("merges", {"merges": ((1, 4), (1, 4))}),
        ("merges", {"merges": ((3, 4),)}),
        ("merges", {"merges": ((-1, 4),)}),
        ("merges", {"merges": ((0, 0),)}),
        ("reads", {"reads": "patches"}),
    ],
)
def test_a_point_that_no_net_can_run_is_refused_by_its_field(field, values):
    with pytest.raises(InputError, match=f"^{field} is"):
        Point(**{"size": 16, "blocks": 4, **values})


@pytest.mark.parametrize(
    ("field", "point"),
    [
        ("size", Point(2, 4)),
        ("size", Point(18, 4)),
        ("blocks", Point(16, 5)),
        ("merges", Point(16, 4, ((0, 9),))),
        ("merges", Point(16, 4, ((0, 8), (1, 5)))),
        ("merges", Point(16, 4, ((0, 3),), pooled=True)),
        ("pooled", Point(12, 4, pooled=True)),
        ("image", Point(12, 4)),
    ],
)
def test_a_point_that_this_net_cannot_run_is_refused_by_its_field(field, point):
    with pytest.raises(InputError, match=f"^{field} is"):
        load_model(DEEP).at(point, pictures(16))


@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        ("vit_tiny_patch16_224", {"reg_tokens": 4}),
        ("vit_tiny_patch16_224", {"class_token": False, "global_pool": "avg"}),
        ("vit_tiny_patch16_224", {"class_token": False, "global_pool": "map"}),
    ],
)
def test_a_net_with_registers_or_without_a_class_token_is_refused(architecture, options):
    with pytest.raises(BackboneError, match="class token alone"):
        AdaptiveViT(create_vit(architecture, {"depth": 1, **options}))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"pos_embed": "none"}, "position embeddings of shape None"),
        ({"img_size": (16, 32)}, "16 x 32 pixels"),
        ({"patch_size": (8, 16)}, "patches of 8 x 16"),
        ({"dynamic_img_size": True}, None),
    ],
)
def test_a_net_whose_positions_cannot_be_resampled_keeps_its_gammas_and_refuses_points(options, reason):
    options = {"img_size": 32, "depth": 1, **options}
    model = AdaptiveViT(create_vit("vit_tiny_patch16_224", options)).eval()
    if reason is None:
        assert model.dimensions.tokens(48) == 10
        return
    with pytest.raises(BackboneError, match=reason):
        model.at(Point(32, 1), pictures(32))


@pytest.mark.parametrize("net", [VIT_S, Dimensions(24, 2, 64, 256, 4), Dimensions(518, 14, 768, 3072, 12)], ids=str)
def test_candidates_can_be_run_differ_and_hit_their_share_of_the_arithmetic(net):
    points = list(candidates(net))
    for point in points:
        point.check(net)
    assert len(set(points)) == len(points) and {point.reads for point in points} == set(READS)
    assert {point.blocks for point in points} == {net.depth, 3 * net.depth // 4}
    assert len({point.size for point in points}) == 4 and max(point.size for point in points) == net.size
    merged = [point for point in points if point.merges]
    assert merged and all(point.size == net.size for point in merged)
    assert any(point.pooled for point in points) == (net.size // net.patch % 2 == 0)
    for point in merged:
        share = arithmetic(replace(point, blocks=net.depth, reads=BOTH), net)
        assert min(abs(share - goal) for goal in GOALS) <= 0.03
        left = net.tokens(net.size) - np.cumsum([count for _, count in point.merges])
        assert not np.any(left % 8)


def test_arithmetic_is_that_of_the_layers_written_out():
    """ViT-S at 112 pixels, 50 tokens: per block 12 D^2 for each token and 2 D for each pair, and the patches' projection."""
    block, patches = 50 * 12 * 384**2 + 2 * 50 * 50 * 384, 49 * 768 * 384
    whole = 12 * (197 * 12 * 384**2 + 2 * 197 * 197 * 384) + 196 * 768 * 384
    assert arithmetic(Point(112, 12, reads=MEAN), VIT_S) == pytest.approx((12 * block + patches) / whole)
    last = 50 * 3 * 384**2 + 2 * 50 * 384 + 9 * 384**2  # projections of all, the rest of the class token alone
    assert arithmetic(Point(112, 12), VIT_S) == pytest.approx((11 * block + last + patches) / whole)
    assert next(candidates(VIT_S, [96])).size == 96
    with pytest.raises(InputError, match="size"):
        list(candidates(VIT_S, [100]))


@torch.no_grad()
@pytest.mark.parametrize(("fused", "most"), [(False, 250), (True, 130)])
def test_kernels_of_a_forward_at_half_of_the_arithmetic(fused, most, monkeypatch):
    """Counted without a GPU, on tensors without content; there attention is one kernel, and Triton's merging two."""

    def attention(query, *_, **__):
        return query.transpose(1, 2).clone(memory_format=torch.contiguous_format).transpose(1, 2)

    def in_two(x_BND, attended_BND, size_BN1, key_BHNE, merged):
        size_BN1 = torch.zeros(len(x_BND), x_BND.shape[1] - merged, 1, device=x_BND.device)
        return x_BND[:, merged:].clone(), size_BN1, size_BN1

    monkeypatch.setattr(model_file, "scaled_dot_product_attention", attention)
    if fused:
        monkeypatch.setattr(model_file, "_merging", lambda *_: in_two)
    model = AdaptiveViT(create_vit("vit_base_patch16_224", {})).eval().to("meta", torch.bfloat16)
    point = merged_to(0.52, Point(224, 12), model.dimensions)
    images = torch.zeros(2, 3, 224, 224, device="meta", dtype=torch.bfloat16)
    model.at(point, images)  # resamples no positions
    assert arithmetic(point, model.dimensions) == pytest.approx(0.52, abs=0.01) and len(point.merges) == 4
    assert launches(lambda: model.at(point, images)) <= most


def test_points_that_share_a_forward_read_in_it_what_they_read_alone():
    model = load_model(DEEP)
    points = numbered(model.dimensions)
    groups = forwards(points)
    assert sorted(number for group in groups.values() for number in group) == sorted(points)
    assert len(groups) <= 7 < len(points)
    for forward, group in groups.items():
        ends = sorted({point.blocks for point in group.values()})
        together = dict(zip(ends, model.at_ends(forward, pictures(forward.size), ends), strict=True))
        for point in group.values():
            alone, width = model.at(point, pictures(point.size)), model.width
            part = {CLASS: slice(0, width), MEAN: slice(width, None), BOTH: slice(None)}[point.reads]
            torch.testing.assert_close(together[point.blocks][:, part], alone, atol=1e-5, rtol=1e-4)


def height(on: set[int], seconds: dict[int, float], share: dict[int, float], budget: float) -> float:
    """The most accuracy that a mixture of two settings, or of one and no answer, gives for `budget` seconds a request."""
    ends = [(0.0, 0.0), *((seconds[n], share[n]) for n in on)]
    best = max((a for s, a in ends if s <= budget), default=0.0)
    for (s1, a1), (s2, a2) in product(ends, ends):
        if s1 <= budget < s2:
            best = max(best, a1 + (a2 - a1) * (budget - s1) / (s2 - s1))
    return best


@pytest.mark.parametrize("seed", range(6))
def test_what_is_kept_loses_nothing_of_any_tasks_hull_and_little_where_there_is_more_than_may_be_kept(seed):
    rng = np.random.default_rng(seed)
    seconds = {n: float(s) for n, s in enumerate(rng.uniform(0.1, 1.0, 12))}
    shares = [{n: float(rng.uniform(0.3, 0.6) + 0.3 * seconds[n] ** 0.5) for n in seconds} for _ in range(3)]
    budgets = np.linspace(0.01, 1.0, 40)

    def worth(on: set[int]) -> float:
        return float(np.mean([[height(on, seconds, share, b) for b in budgets] for share in shares]))

    assert worth(set(seconds)) >= worth(set(kept(seconds, shares, 12))) >= worth(set(seconds)) * (1 - LITTLE) - 2e-3
    few = kept(seconds, shares, 3)
    assert len(few) == 3
    best = max(worth(set(some)) for some in combinations(seconds, 3))
    assert worth(set(few)) >= best - 0.01
