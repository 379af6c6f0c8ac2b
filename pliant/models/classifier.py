"""Turns artifacts of classifiers and regressors into modules of transformers, and modules into weights.

Knows transformers' configurations and nothing of training, devices or scheduling.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pliant.errors import ArtifactError
from pliant.models.artifact import Classifier

_TYPED = ("xlnet", "funnel")  # models with token types whose configuration does not count them


def module(config: Mapping[str, Any]) -> nn.Module:
    """Return an untrained classifier of transformers; `config` is the content of its config.json."""
    from transformers import AutoConfig, AutoModelForSequenceClassification

    values = dict(config)
    auto: Any = AutoModelForSequenceClassification
    model: nn.Module = auto.from_config(AutoConfig.for_model(**values))
    return model.eval()


def load_model(classifier: Classifier) -> nn.Module:
    """Return the classifier with its weights, on the CPU. Raises `ArtifactError` if they do not fit it."""
    model = module(json.loads(classifier.config))
    weights = {name: torch.from_numpy(np.array(array)) for name, array in classifier.weights.items()}
    try:
        missing, unexpected = model.load_state_dict(weights, strict=False)
    except RuntimeError as error:
        raise ArtifactError(f"the weights of {classifier.name} do not fit its configuration: {error}") from error
    if missing or unexpected:
        names = ", ".join([*missing, *unexpected][:4])
        raise ArtifactError(f"the weights of {classifier.name} do not fit its configuration: {names}")
    return model


def weights(model: nn.Module) -> dict[str, NDArray[np.float32]]:
    """Return every parameter and persistent buffer as float32."""
    return {name: tensor.detach().float().cpu().numpy().copy() for name, tensor in model.state_dict().items()}


def layers(model: nn.Module) -> nn.ModuleList:
    """Return the encoder's layers. Raises `ArtifactError` for a model without a list of layers."""
    lists = [child for child in model.modules() if isinstance(child, nn.ModuleList) and len(child)]
    if not lists:
        raise ArtifactError(f"{type(model).__name__} has no list of layers")
    return lists[0]


def typed(model: nn.Module) -> bool:
    """Whether the model has embeddings of several token types. Some models without them, such as GPT-2, take the argument
    too, and would add the embeddings of those ids as words.
    """
    config: Any = model.config
    tables = getattr(config, "type_vocab_size", 2 if getattr(config, "model_type", "") in _TYPED else 0) or 0
    return "token_type_ids" in inspect.signature(model.forward).parameters and tables > 1


def positions(model: nn.Module) -> int | None:
    """Return the most tokens that the model can read; None without a table of positions or a configured limit.

    The family of RoBERTa starts its positions behind the number of the padding token.
    """
    for name, child in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(child, nn.Embedding):
            return child.num_embeddings - (0 if child.padding_idx is None else child.padding_idx + 1)
    limit = getattr(model.config, "max_position_embeddings", None)
    return limit if isinstance(limit, int) and limit > 0 else None
