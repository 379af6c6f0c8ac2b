"""The linear layers of a transformers encoder in the layout that oneDNN multiplies fastest (see
pliant/models/packed.py).

For inference on a CPU: a packed layer can be neither moved, saved nor trained.
"""

from __future__ import annotations

from torch import nn
from torch.nn.functional import gelu

from pliant.models.classifier import layers
from pliant.models.packed import PackedLinear

_THEN = {"dense": "intermediate_act_fn", "lin1": "activation"}
"""Name of a linear layer -> name of the activation behind it, in the families of BERT and DistilBERT."""


def pack(model: nn.Module) -> None:
    """Replace the linear layers of every encoder layer, in place, together with an exact GELU behind one.

    Raises `ArtifactError` for a model without a list of layers.
    """
    for parent in list(layers(model).modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                after = _THEN.get(name, "")
                fused = _exact_gelu(getattr(parent, after, None))
                setattr(parent, name, PackedLinear(child, "gelu" if fused else "none"))
                if fused:
                    setattr(parent, after, nn.Identity())


def _exact_gelu(activation: object) -> bool:
    """Whether the activation is the GELU that oneDNN has: torch's exact one, or transformers' wrapper of it."""
    if isinstance(activation, nn.GELU):
        return activation.approximate == "none"
    return getattr(activation, "act", None) is gelu
