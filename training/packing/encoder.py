"""Encoders of transformers by address, for predictors of output lengths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import nn

from pliant.errors import InputError
from pliant.packing.engine.model import without_pooler
from training.starts import read_tokenizer, tell


def read(address: str, max_length: int) -> tuple[nn.Module, Tokenizer]:
    """`path:FOLDER` or `hub:NAME`. Raises `InputError`, and `OfflineError` where the hub is out of reach."""
    scheme, _, rest = address.partition(":")
    if scheme == "path" and not Path(rest).is_dir():
        raise InputError("encoder", rest, "an existing folder with config.json, tokenizer.json and weights")
    if scheme not in ("path", "hub") or not rest:
        raise InputError("encoder", address, "embedded, path:FOLDER or hub:NAME")
    try:
        return _load(rest, max_length), read_tokenizer(rest)
    except Exception as error:  # whatever a reader or the network raises
        tell(scheme, rest, error, "encoder", "the embedded encoder (embedded)")


def _load(name: str, max_length: int) -> nn.Module:
    from transformers import AutoModel
    from transformers.utils import logging

    logging.set_verbosity_error()  # it tells at length which heads are left out, which is the point
    logging.disable_progress_bar()
    made: Any = AutoModel.from_pretrained(name, attn_implementation="sdpa", dtype=torch.float32)
    most = getattr(made.config, "max_position_embeddings", None)
    if most is not None and max_length > most:
        raise InputError("max_length", max_length, f"at most {most} for this encoder")
    encoder: nn.Module = without_pooler(made)
    return encoder
