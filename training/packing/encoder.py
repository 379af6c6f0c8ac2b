"""Loads encoders of transformers by address, for predictors of output lengths."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import nn

from pliant.errors import InputError
from pliant.models.text import SHORTEST
from pliant.packing.engine.model import LengthModel, tensors, without_pooler
from pliant.training import loading
from pliant.training.starts import raise_unreadable, read_tokenizer


def read(address: str, max_length: int) -> tuple[nn.Module, Tokenizer]:
    """Return the encoder and tokenizer at `path:FOLDER` or `hub:NAME`; `max_length`: tokens that it must read.

    Raises `InputError`, and `OfflineError` if the hub is out of reach.
    """
    scheme, _, rest = address.partition(":")
    if scheme == "path" and not Path(rest).is_dir():
        raise InputError("encoder", rest, "an existing folder with config.json, tokenizer.json and weights")
    if scheme not in ("path", "hub") or not rest:
        raise InputError("encoder", address, "embedded, path:FOLDER or hub:NAME")
    try:
        encoder, tokenizer = _load(rest, max_length), read_tokenizer(rest)
        _try(encoder, rest)
        loading.check_tokens(tokenizer, encoder, rest, "encoder")
    except Exception as error:  # whatever a reader or the network raises
        raise_unreadable(scheme, rest, error, "encoder", "the embedded encoder (embedded)")
    return encoder, tokenizer


def _try(encoder: nn.Module, name: str) -> None:
    """Raise `InputError` for a model that cannot be read by a predictor, such as one that wants a second text."""
    try:
        LengthModel(encoder)(*tensors([range(SHORTEST)]))
    except Exception as error:  # models raise all kinds for what they are not made for
        value = f"{name}, whose {type(encoder).__name__} cannot be run by token ids and a mask alone"
        raise InputError("encoder", value, "an encoder of transformers") from error


def _load(name: str, max_length: int) -> nn.Module:
    from transformers import AutoModel
    from transformers.utils import logging

    logging.set_verbosity_error()  # what it would list at length is looked at by loading.load
    logging.disable_progress_bar()
    model = loading.load(AutoModel, name, "encoder", loading.headless, dtype=torch.float32)
    positions = getattr(model.config, "max_position_embeddings", None)
    if positions is not None and max_length > positions:
        raise InputError("max_length", max_length, f"at most {positions} for this encoder")
    encoder: nn.Module = without_pooler(model)
    return encoder
