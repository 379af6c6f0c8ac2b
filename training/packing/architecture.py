"""Says which causal models of transformers packing's engine cannot run, by their class and configuration alone.

What no configuration says is found by comparison.py, which runs the model.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from pliant.errors import InputError

NEEDED = ("position_ids", "logits_to_keep")  # what the engine calls a model with, besides its tokens
SERVED = "a causal model of transformers with full attention in every layer, and no state besides its keys and values"


def check_architecture(name: str) -> None:
    """Raise `InputError` for a model of a folder or the hub that the engine cannot run, before any weights are read."""
    from transformers import AutoConfig, AutoModelForCausalLM

    auto: Any = AutoModelForCausalLM
    config, classes = AutoConfig.from_pretrained(name), auto._model_mapping
    if type(config) not in classes:
        raise InputError("generator", f"{name}, of the kind {config.model_type}", SERVED)
    kind = classes[type(config)]
    if reason := unserved(kind, config.get_text_config()):
        raise InputError("generator", f"{name}, whose {kind.__name__} {reason}", SERVED)


def unserved(kind: Any, config: Any) -> str:
    """Return why the engine cannot run a class of models as transformers does; empty where nothing speaks against it."""
    layers = sorted(set(getattr(config, "layer_types", None) or ()) - {"full_attention"})
    missing = [name for name in NEEDED if name not in inspect.signature(kind.forward).parameters]
    if kind._is_stateful:
        return "keeps a state outside of attention"
    if layers:
        return f"has layers of {', '.join(layers)}"
    if not (kind._can_set_attn_implementation() and kind._supports_sdpa):
        return "computes its attention by itself, and not through transformers' interface"
    if missing:
        return f"takes no {' and no '.join(missing)}"
    # Rotary positions whose table depends on the longest text of a batch; some models have one for each kind of layer.
    ropes: Mapping[str, Any] = getattr(config, "rope_parameters", None) or {}
    for rope in [each for each in (ropes, *ropes.values()) if isinstance(each, dict)]:
        kind, border = rope.get("rope_type"), rope.get("original_max_position_embeddings")
        if kind in ("dynamic", "longrope") and border and border < getattr(config, "max_position_embeddings", 0):
            moved = f"has positions ({kind}) that change for all texts when one has more than {border} tokens"
            return f"{moved}, unless max_position_embeddings of its config.json is lowered to that"
    return ""
