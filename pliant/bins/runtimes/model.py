"""Encoders of transformers with their heads as plain modules, from the values of an artifact.

Shape suffixes: B texts, N tokens, H width, K outputs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pliant.bins.artifact import Encoder
from pliant.errors import ArtifactError
from pliant.models.classifier import module as classifier
from pliant.models.classifier import positions, typed


class HeadedEncoder(nn.Module):
    """From tokens to [B, K]: logits, or an embedding (K = H) pooled over valid tokens and normalised if configured so.

    `embeds`: whether it gives embeddings. `inputs`: the names of its arguments, in order. `pad`: the id of the padding
    token. `positions`: most tokens of a text.
    """

    def __init__(self, model: nn.Module, head: str, pooling: str = "", normalize: bool = False) -> None:
        super().__init__()
        self.model = model
        self._head, self._pooling, self._normalize = head, pooling, normalize
        self.embeds = head == "embedding"
        config: Any = model.config
        self.typed = typed(model)
        self.inputs = ("input_ids", "attention_mask") + (("token_type_ids",) if self.typed else ())
        self.pad: int = getattr(config, "pad_token_id", None) or 0
        self.positions = positions(model)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        """Return [B, K] for int64 [B, N] arguments. Every row must have a valid token.

        Without a mask no token is padding.
        """
        if self._head == "classification":
            logit_BK: Tensor = self._run(input_ids, attention_mask, token_type_ids).logits
            return logit_BK
        return self.with_tokens(input_ids, attention_mask, token_type_ids)[0]

    def with_tokens(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the embeddings [B, H], and those of all tokens [B, N, H] that they are pooled from, padding included."""
        token_BNH: Tensor = self._run(input_ids, attention_mask, token_type_ids).last_hidden_state
        return self.pooled(token_BNH, attention_mask), token_BNH

    def pooled(self, token_BNH: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Return the embeddings [B, H] of texts whose tokens have these, padding included."""
        pooled_BH = self._pool(token_BNH, attention_mask)
        return nn.functional.normalize(pooled_BH, dim=-1) if self._normalize else pooled_BH

    def _run(self, input_ids: Tensor, attention_mask: Tensor | None, token_type_ids: Tensor | None) -> Any:
        types = {"token_type_ids": token_type_ids} if self.typed else {}
        return self.model(input_ids=input_ids, attention_mask=attention_mask, **types)

    def _pool(self, token_BNH: Tensor, valid_BN: Tensor | None) -> Tensor:
        token_BNH = token_BNH.float()  # a sum over many tokens would lose digits in half precision
        if self._pooling == "cls":
            return token_BNH[:, 0]
        if valid_BN is None:
            return token_BNH.mean(1)
        weight_BN1 = valid_BN.unsqueeze(-1).to(token_BNH.dtype)
        return (token_BNH * weight_BN1).sum(1) / weight_BN1.sum(1)


class WithTokens(nn.Module):
    """An embedding encoder that gives the embeddings of all tokens too, as a module for exporters."""

    def __init__(self, model: HeadedEncoder) -> None:
        super().__init__()
        self.headed = model

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return as `HeadedEncoder.with_tokens`."""
        return self.headed.with_tokens(input_ids, attention_mask, token_type_ids)


def module(config: Mapping[str, Any], head: str) -> nn.Module:
    """Return an untrained model of transformers for the configuration in a config.json, with the layers of its head."""
    if head == "classification":
        return classifier(config)
    from transformers import AutoConfig, AutoModel

    auto_model: Any = AutoModel
    model: nn.Module = auto_model.from_config(AutoConfig.for_model(**dict(config)))
    return model.eval()


def describe(encoder: Encoder) -> HeadedEncoder:
    """Return the encoder without its weights, on the meta device: its inputs and limits at no cost."""
    with torch.device("meta"):
        return _headed(encoder, module(json.loads(encoder.config), encoder.head))


def load_model(encoder: Encoder) -> HeadedEncoder:
    """Return the encoder with its weights, on the CPU, for inference. Raises `ArtifactError` where they do not fit."""
    model = module(json.loads(encoder.config), encoder.head)
    weights = {name: torch.from_numpy(np.array(array)) for name, array in encoder.weights.items()}
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        lines = " ".join(line.strip() for line in str(error).splitlines()[1:4])
        raise ArtifactError(f"the weights of {encoder.name} do not fit its configuration: {lines}") from error
    return _headed(encoder, model)


def _headed(encoder: Encoder, model: nn.Module) -> HeadedEncoder:
    return HeadedEncoder(model, encoder.head, encoder.pooling, encoder.normalize).eval().requires_grad_(False)
