"""The frozen backbone of the tokens system: pretrained weights from timm's hub or a file, or a small ViT trained here.

The small ViT sees no task of the service, only the labels of the upstream classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import timm
import torch
from timm.layers import PatchDropout
from timm.models.vision_transformer import checkpoint_filter_fn
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pliant.errors import InputError, OfflineError
from pliant.precision import TRAINING_PRECISIONS, lowered
from pliant.progress import Progress, silent
from pliant.tokens.artifact import Backbone, Option
from pliant.tokens.model import AdaptiveViT, create_vit
from pliant.training.curves import note
from pliant.training.data import ImageData
from pliant.training.loading import quick_if_offline
from pliant.training.pictures import AUGMENTATIONS, augmentation


@dataclass(frozen=True, slots=True)
class FoundationConfig:
    """How the embedded backbone is pretrained; the defaults are for the digits: 64 patches of one original pixel each."""

    architecture: str = "vit_tiny_patch16_224"
    options: Mapping[str, Option] = field(
        default_factory=lambda: {"img_size": 16, "patch_size": 2, "embed_dim": 192, "depth": 8, "num_heads": 3}
    )
    upstream_classes: int = 5  # labels below this are trained on; the others stay unseen
    images: int = 20_000  # drawn with replacement, in all
    batch: int = 64
    learning_rate: float = 8e-4
    weight_decay: float = 0.05
    patch_dropout: float = 0.5  # share of patches left out while training: faster, and robust to missing tokens
    warmup: int = 20  # steps
    label_smoothing: float = 0.05
    augment: str = "jitter"  # see training/pictures.py
    precision: str = "auto"  # of the arithmetic while training, see pliant/precision.py
    seed: int = 0

    def __post_init__(self) -> None:
        lacking = {"img_size", "patch_size", "embed_dim"} - set(self.options)
        if lacking:
            raise InputError(
                "foundation.options", f"without {', '.join(sorted(lacking))}", "whole: it replaces the defaults"
            )
        if self.augment not in AUGMENTATIONS:
            raise InputError("foundation.augment", self.augment, f"one of {', '.join(AUGMENTATIONS)}")
        if self.precision not in TRAINING_PRECISIONS:
            raise InputError("foundation.precision", self.precision, f"one of {', '.join(TRAINING_PRECISIONS)}")


def pretrain(config: FoundationConfig, data: ImageData, device: str = "cpu", progress: Progress = silent) -> Backbone:
    """Train a small ViT on the upstream classes of `data.split.fit`.

    `config.patch_dropout` of its patches are left out at each step. Raises `InputError` for fewer pictures than a
    batch.
    """
    torch.manual_seed(config.seed)
    size = int(config.options["img_size"])
    shown = data.split.fit[data.labels[data.split.fit] < config.upstream_classes]
    if len(shown) < config.batch:
        raise InputError("data", f"{len(shown)} images of the upstream classes", f"at least {config.batch}")
    pixels_NCHW = torch.from_numpy(data.images.batch(shown, size)).to(device).permute(0, 3, 1, 2)
    share_NCHW = pixels_NCHW.float() / 255  # the pixels stay bytes, as floats need four times the memory
    mean, std = float(share_NCHW.mean()), float(share_NCHW.std())
    del share_NCHW
    vit = create_vit(config.architecture, config.options)
    vit.patch_drop = PatchDropout(config.patch_dropout, num_prefix_tokens=1)
    grid = size // int(config.options["patch_size"])
    with torch.no_grad():
        # Learned positions start as sines: with patches of one pixel, finding them would take the whole budget.
        vit.pos_embed[0, 1:] = positions(grid, int(config.options["embed_dim"]))
    vit = vit.to(device)
    shown_N = torch.from_numpy(data.labels[shown]).to(device)
    _fit(config, vit, lambda drawn: (pixels_NCHW[drawn].float() / 255 - mean) / std, shown_N, progress)
    weights = {name: w.detach().cpu().float().numpy() for name, w in vit.state_dict().items()}
    source = f"pretrained on classes below {config.upstream_classes} of {data.name} ({config.images} images drawn)"
    return Backbone(config.architecture, config.options, size, (mean,) * 3, (std,) * 3, source, weights)


def positions(grid: int, width: int) -> Tensor:
    """Return the sine and cosine position embedding of a square grid, [grid * grid, width]."""
    angle = torch.arange(grid)[:, None] / 100 ** (torch.arange(width // 4) / (width // 4))
    line_GD = torch.cat([angle.sin(), angle.cos()], dim=1)
    rows = line_GD[:, None].expand(grid, grid, -1)
    columns = line_GD[None].expand(grid, grid, -1)
    return torch.cat([rows, columns], dim=-1).reshape(grid * grid, width)


def _fit(
    config: FoundationConfig, vit: Any, images: Callable[[Tensor], Tensor], labels_N: Tensor, progress: Progress
) -> None:
    """Train the net in place; `images` gives the normalised pictures of the indices drawn."""
    model, change = AdaptiveViT(vit).train(), augmentation(config.augment)
    head = nn.Linear(model.width, config.upstream_classes).to(labels_N.device)
    parameters = [*model.parameters(), *head.parameters()]
    matrices, flat = [p for p in parameters if p.ndim >= 2], [p for p in parameters if p.ndim < 2]
    groups: list[dict[str, Any]] = [{"params": matrices}, {"params": flat, "weight_decay": 0.0}]
    rate, decay = config.learning_rate, config.weight_decay
    optimizer = torch.optim.AdamW(groups, lr=rate, weight_decay=decay, betas=(0.9, 0.98))
    steps = max(1, config.images // config.batch)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * warm_cosine(step, steps, config.warmup)
        drawn = torch.randint(len(labels_N), (config.batch,), device=labels_N.device)
        with lowered(config.precision, labels_N.device):
            logits = head(model(change(images(drawn))))
        loss = cross_entropy(logits.float(), labels_N[drawn], label_smoothing=config.label_smoothing)
        note("accuracy", step, steps, (logits.detach().argmax(1) == labels_N[drawn]).float().mean())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        note("loss", step, steps, loss.detach())
        progress(step + 1, steps)
    vit.patch_drop = nn.Identity()


def warm_cosine(step: int, steps: int, warmup: int) -> float:
    """Return the factor on the learning rate: a linear warm-up, then half a cosine down to zero."""
    return min(1.0, (step + 1) / warmup) * 0.5 * (1 + math.cos(math.pi * step / steps))


def from_timm(architecture: str, size: int | None = None) -> Backbone:
    """Return a pretrained timm vision transformer for pictures of `size` pixels a side; None: of its own.

    Raises `InputError` for an unknown architecture or a size that it cannot take, and `OfflineError` where the hub is out
    of reach.
    """
    options = _options(architecture, size)
    with quick_if_offline() as reason:
        try:
            vit = create_vit(architecture, options, pretrained=True)
        except Exception as error:
            raise OfflineError(
                f"the weights of {architecture} could not be fetched from timm's hub ({reason or type(error).__name__}); "
                "without a network use the backbone embedded or a local file (file:ARCHITECTURE:PATH)"
            ) from error
    return _described(architecture, options, vit, f"timm {architecture}, pretrained")


def from_file(architecture: str, path: str, size: int | None = None) -> Backbone:
    """Return a timm vision transformer with the weights of a local safetensors file, for pictures of `size` pixels a side.

    Raises `InputError` for an unknown architecture or a size that it cannot take, and for a file that cannot be read or
    does not fit.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    options = _options(architecture, size)
    try:
        weights = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError("backbone", path, "a readable safetensors file") from error
    vit = create_vit(architecture, options)
    if size is not None and "pos_embed" in weights:
        weights["pos_embed"] = checkpoint_filter_fn({"pos_embed": weights["pos_embed"]}, vit)["pos_embed"]
    try:  # weights that the net does not have, such as its classifier's, are ignored
        missing = vit.load_state_dict(weights, strict=False).missing_keys
    except RuntimeError as error:  # a shape differs
        raise InputError("backbone", path, f"the weights of {architecture} ({error})") from error
    if missing:
        raise InputError("backbone", path, f"the weights of {architecture}; {missing[0]} is missing")
    return _described(architecture, options, vit, f"{architecture} from {path.rsplit('/', 1)[-1]}")


def _options(architecture: str, size: int | None) -> dict[str, Option]:
    """Return what makes a net for pictures of this size. Raises `InputError`."""
    if not timm.is_model(architecture):
        raise InputError("architecture", architecture, "one that timm knows, such as vit_small_patch16_224")
    if size is None:
        return {}
    with torch.device("meta"):
        patch = create_vit(architecture, {}).patch_embed.patch_size[0]
    if size < patch or size % patch:
        raise InputError("image_size", size, f"a multiple of the patches' {patch} pixels")
    return {"img_size": size}


def _described(architecture: str, options: dict[str, Option], vit: Any, source: str) -> Backbone:
    settings = vit.pretrained_cfg
    weights = {name: w.detach().float().numpy().copy() for name, w in vit.state_dict().items()}
    size = int(options.get("img_size", settings["input_size"][-1]))
    return Backbone(architecture, options, size, tuple(settings["mean"]), tuple(settings["std"]), source, weights)
