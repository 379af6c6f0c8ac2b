"""Classifiers and regressors of transformers as artifacts hold them: from values to a module and back.

Knows transformers' configurations and nothing of training, devices or scheduling.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pliant.errors import ArtifactError
from pliant.models.artifact import Classifier


def module(config: Mapping[str, Any]) -> nn.Module:
    """An untrained classifier of transformers for a configuration as its config.json holds it."""
    from transformers import AutoConfig, AutoModelForSequenceClassification

    told = dict(config)
    made: Any = AutoModelForSequenceClassification
    model: nn.Module = made.from_config(AutoConfig.for_model(**told), attn_implementation="sdpa")
    return model.eval()


def load_model(classifier: Classifier) -> nn.Module:
    """The classifier with its weights, on the CPU. Raises `ArtifactError` where they do not fit its configuration."""
    model = module(json.loads(classifier.config))
    weights = {name: torch.from_numpy(np.array(array)) for name, array in classifier.weights.items()}
    try:
        missing, unexpected = model.load_state_dict(weights, strict=False)
    except RuntimeError as error:
        raise ArtifactError(f"the weights of {classifier.name} do not fit its configuration: {error}") from error
    if missing or unexpected:
        told = ", ".join([*missing, *unexpected][:4])
        raise ArtifactError(f"the weights of {classifier.name} do not fit its configuration: {told}")
    return model


def weights(model: nn.Module) -> dict[str, NDArray[np.float32]]:
    """Every parameter and persistent buffer as float32."""
    return {name: tensor.detach().float().cpu().numpy().copy() for name, tensor in model.state_dict().items()}


def layers(model: nn.Module) -> nn.ModuleList:
    """The encoder's layers. Raises `ArtifactError` for a model without one list of them."""
    lists = [child for child in model.modules() if isinstance(child, nn.ModuleList) and len(child)]
    if not lists:
        raise ArtifactError(f"{type(model).__name__} has no list of layers")
    return lists[0]


def positions(model: nn.Module) -> int | None:
    """How many tokens the model can read at most; None where it has no table of positions (nor a configured limit).

    RoBERTa's family counts positions from behind the padding's number on.
    """
    for name, child in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(child, nn.Embedding):
            return child.num_embeddings - (0 if child.padding_idx is None else child.padding_idx + 1)
    found = getattr(model.config, "max_position_embeddings", None)
    return found if isinstance(found, int) and found > 0 else None
