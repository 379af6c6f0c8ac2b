"""The linear layers of a transformers encoder in the layout that oneDNN multiplies fastest (see pliant/models/packed.py).

For inference in float32 on a CPU: a packed layer can be neither moved, saved nor trained.
"""

from __future__ import annotations

from torch import nn
from torch.nn.functional import gelu

from pliant.models.classifier import layers
from pliant.models.packed import PackedLinear

_THEN = {"dense": "intermediate_act_fn", "lin1": "activation"}
"""A linear layer and what its parent applies to its output, by their names in BERT's and DistilBERT's families."""


def pack(model: nn.Module) -> None:
    """Replace the linear layers of every encoder layer, in place; an exact GELU behind one goes into it."""
    for parent in list(layers(model).modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                after = _THEN.get(name, "")
                fused = _exact_gelu(getattr(parent, after, None))
                setattr(parent, name, PackedLinear(child, "gelu" if fused else "none"))
                if fused:
                    setattr(parent, after, nn.Identity())


def _exact_gelu(activation: object) -> bool:
    """Whether it is the GELU that oneDNN knows: torch's, or the wrapper of transformers around it."""
    if isinstance(activation, nn.GELU):
        return activation.approximate == "none"
    return getattr(activation, "act", None) is gelu
