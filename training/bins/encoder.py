"""Where the encoders of the bins system come from: a classifier trained here, or a model of a folder or the hub.

A model with the head of a sequence classifier becomes a classifier; with a head of one output, such as a cross-encoder's,
it becomes a reranker. One without it, or of sentence-transformers (it has a modules.json), becomes an embedding, pooled and
normalised as that file says, with the prompts of its config_sentence_transformers.json.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pliant.bins.artifact import Encoder
from pliant.errors import InputError
from pliant.models.artifact import Classifier
from pliant.models.classifier import load_model, positions, weights
from pliant.models.text import SHORTEST
from training import loading
from training.starts import raise_unreadable, read_tokenizer

SCHEMES = ("path", "hub")
OFFLINE = "the embedded encoder (embedded)"
"""What works without a network, besides a folder."""
UNBOUNDED = 512  # tokens of a text at most, where neither the settings nor the model say it
POOLINGS: Mapping[str, str] = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
"""Key of 1_Pooling/config.json -> our name. Newer files name the pooling under `pooling_mode` instead."""

Fetch = Callable[[str], dict[str, Any] | list[Any] | None]
"""From the name of a JSON file of a model to its content; None where the model has no such file."""


@dataclass(frozen=True, slots=True)
class _Head:
    kind: str  # one of pliant/bins/artifact.py's HEADS
    pooling: str = ""
    normalize: bool = False


def check(address: str) -> None:
    """Raise `InputError` unless the address is `path:FOLDER` or `hub:NAME`."""
    scheme, _, rest = address.partition(":")
    if scheme not in SCHEMES or not rest:
        raise InputError("encoder", address, "embedded, path:FOLDER or hub:NAME")


def of_classifier(classifier: Classifier, name: str, max_length: int) -> Encoder:
    """Return the classifier as an encoder for texts of up to `max_length` tokens.

    A ModernBERT has rotary positions and a mean for its head, so it may read more than it was trained on. Raises
    `InputError` beyond the model's positions.
    """
    limit = positions(load_model(classifier))
    length = _length(max_length, limit, None)
    return Encoder(
        name,
        "classification",
        classifier.classes,
        "",
        False,
        classifier.config,
        classifier.tokenizer,
        length,
        classifier.data,
        classifier.weights,
    )


def load(address: str, name: str, max_length: int | None = None) -> Encoder:
    """Return the encoder at `path:FOLDER` or `hub:NAME`. Without `max_length` it reads as many tokens as it can.

    Raises `InputError`, and `OfflineError` where the hub is out of reach.
    """
    check(address)
    scheme, _, rest = address.partition(":")
    if scheme == "path" and not Path(rest).is_dir():
        raise InputError("encoder", rest, "an existing folder with config.json, tokenizer.json and weights")
    with _guarded(scheme, rest):
        files = _in_folder(Path(rest)) if scheme == "path" else partial(_in_hub, rest)
        head = _head(files)
        model, tokenizer = _module(rest, head), read_tokenizer(rest).to_str()
        settings = files("sentence_bert_config.json")
        own = settings.get("max_seq_length") if isinstance(settings, dict) else None
        prompts = _prompts(files("config_sentence_transformers.json"))
    length, arrays = _length(max_length, positions(model), own), weights(model)
    config = model.config.to_json_string(use_diff=False)  # type: ignore[union-attr,operator]
    classes = _classes(model) if head.kind == "classification" else ()
    data = fingerprint(config, tokenizer, arrays)
    values = (config, tokenizer, length, data, arrays, prompts)
    return Encoder(name, head.kind, classes, head.pooling, head.normalize, *values)


def fingerprint(config: str, tokenizer: str, arrays: Mapping[str, NDArray[np.float32]]) -> str:
    """Return the fingerprint of a model that was not trained here, in place of that of its data."""
    mark = sha256(config.encode() + b"\0" + tokenizer.encode())
    for name, array in sorted(arrays.items()):
        mark.update(name.encode() + b"\0" + np.ascontiguousarray(array).tobytes())
    return f"sha256:{mark.hexdigest()}"


def _head(files: Fetch) -> _Head:
    """Return the head of a model. Raises `InputError` for modules of sentence-transformers that are not supported."""
    modules = files("modules.json")
    if isinstance(modules, list):
        return _sentence_head(modules, files)
    config = files("config.json")
    named = config.get("architectures") or [] if isinstance(config, dict) else []
    if any(str(name).endswith("ForSequenceClassification") for name in named):
        return _Head("classification")
    return _Head("embedding", "mean", False)


def _sentence_head(modules: list[Any], files: Fetch) -> _Head:
    """Return what follows the transformer: a pooling (the mean if there is none) and perhaps a normalisation."""
    pooling, normalize = "mean", False
    for module in modules:
        match str(module["type"]).rsplit(".", 1)[-1]:
            case "Transformer":
                continue
            case "Pooling":
                pooling = _pooling(files(f"{module['path']}/config.json"))
            case "Normalize":
                normalize = True
            case other:
                raise InputError("module of the encoder", other, "Transformer, Pooling or Normalize")
    return _Head("embedding", pooling, normalize)


def _pooling(config: dict[str, Any] | list[Any] | None) -> str:
    settings = config if isinstance(config, dict) else {}
    named = settings.get("pooling_mode")
    if isinstance(named, str):
        modes = [named]
    else:
        modes = [
            POOLINGS.get(key, key) for key in settings if key.startswith("pooling_mode_") and settings[key] is True
        ]
    if len(modes) != 1 or modes[0] not in POOLINGS.values():
        raise InputError("pooling of the encoder", ", ".join(modes) or "none", "mean or cls")
    return modes[0]


def _prompts(config: dict[str, Any] | list[Any] | None) -> dict[str, str]:
    """Return the prompts by name; none where the model has no such file."""
    prompts = config.get("prompts") if isinstance(config, dict) else None
    if not isinstance(prompts, dict):
        return {}
    return {str(name): prompt for name, prompt in prompts.items() if isinstance(prompt, str)}


def _in_folder(folder: Path) -> Fetch:
    def fetch(name: str) -> Any:
        path = folder / name
        return json.loads(path.read_text()) if path.is_file() else None

    return fetch


def _in_hub(repository: str, name: str) -> Any:
    from transformers.utils.hub import cached_file

    path = cached_file(repository, name, _raise_exceptions_for_missing_entries=False)
    return None if path is None else json.loads(Path(path).read_text())


def _module(name: str, head: _Head) -> nn.Module:
    from transformers import AutoModel, AutoModelForSequenceClassification
    from transformers.utils import logging

    logging.set_verbosity_error()  # what it would list at length is looked at by loading.load
    logging.disable_progress_bar()
    kind: Any = AutoModelForSequenceClassification if head.kind == "classification" else AutoModel
    with torch.random.fork_rng():
        torch.manual_seed(0)  # a missing pooler is drawn at random: always the same, so that digests agree
        ignored = loading.whole if head.kind == "classification" else loading.headless
        model: nn.Module = loading.load(kind, name, "encoder", ignored, attn_implementation="sdpa")
    return model.float().eval()


def _classes(model: nn.Module) -> tuple[str, ...]:
    """Return the names of the classes; a regressor, which has one output, has none."""
    named: Mapping[int, str] = model.config.id2label  # type: ignore[union-attr,assignment]
    return tuple(named[number] for number in sorted(named)) if len(named) > 1 else ()


def _length(wanted: int | None, limit: int | None, own: int | None) -> int:
    """Return the tokens to read: those wanted, else the model's own number, else its positions."""
    if wanted is None:
        return min(own or UNBOUNDED, limit or UNBOUNDED)
    if wanted < SHORTEST or (limit is not None and wanted > limit):
        raise InputError("max_length", wanted, f"from {SHORTEST} to {limit or 'any'} tokens for this encoder")
    return wanted


@contextmanager
def _guarded(scheme: str, name: str) -> Iterator[None]:
    """Turn whatever reading a model raises into one sentence."""
    try:
        yield
    except Exception as error:  # readers and the network raise many kinds
        raise_unreadable(scheme, name, error, "encoder", OFFLINE)
