"""Where the bins system's encoders come from: a classifier trained here, a folder or a model of the hub.

A folder with the head of a sequence classifier becomes a classifier; one without, or of sentence-transformers (it has a
modules.json), an embedding, pooled and normalised as that file says. Knows no runtime, no shapes and no registry.
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
from training.starts import read_tokenizer, tell

SCHEMES = ("path", "hub")
OFFLINE = "the embedded encoder (embedded)"
"""What works without a network, besides a folder."""
UNBOUNDED = 512  # tokens read where neither the settings nor the model say how many
POOLINGS: Mapping[str, str] = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
"""Key of 1_Pooling/config.json -> ours. Newer files name the pooling itself, under `pooling_mode`."""

Fetch = Callable[[str], dict[str, Any] | list[Any] | None]
"""A JSON file of a model by its name; None where the model has none."""


@dataclass(frozen=True, slots=True)
class _Head:
    kind: str  # one of pliant/bins/artifact.py's HEADS
    pooling: str = ""
    normalize: bool = False


def check(address: str) -> None:
    """Whether it is `path:FOLDER` or `hub:NAME`. Raises `InputError`."""
    scheme, _, rest = address.partition(":")
    if scheme not in SCHEMES or not rest:
        raise InputError("encoder", address, "embedded, path:FOLDER or hub:NAME")


def of_classifier(classifier: Classifier, name: str, max_length: int) -> Encoder:
    """The same model, to be read up to `max_length` tokens. Raises `InputError` beyond the model's positions.

    A ModernBERT has rotary positions and a mean for its head: it may read more than it was trained on.
    """
    most = positions(load_model(classifier))
    length = _length(max_length, most, None)
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
    """`path:FOLDER` or `hub:NAME`. Without `max_length` the model's own, at most its positions.

    Raises `InputError`, and `OfflineError` where the hub is out of reach.
    """
    check(address)
    scheme, _, rest = address.partition(":")
    if scheme == "path" and not Path(rest).is_dir():
        raise InputError("encoder", rest, "an existing folder with config.json, tokenizer.json and weights")
    with _told(scheme, rest):
        files = _in_folder(Path(rest)) if scheme == "path" else partial(_in_hub, rest)
        head = _head(files)
        model, tokenizer = _module(rest, head), read_tokenizer(rest).to_str()
        told = files("sentence_bert_config.json")
        usual = told.get("max_seq_length") if isinstance(told, dict) else None
    length, arrays = _length(max_length, positions(model), usual), weights(model)
    config = model.config.to_json_string(use_diff=False)  # type: ignore[union-attr,operator]
    classes = _classes(model) if head.kind == "classification" else ()
    data = fingerprint(config, tokenizer, arrays)
    return Encoder(name, head.kind, classes, head.pooling, head.normalize, config, tokenizer, length, data, arrays)


def fingerprint(config: str, tokenizer: str, arrays: Mapping[str, NDArray[np.float32]]) -> str:
    """Of a model that nobody here trained: it stands in place of its data's."""
    mark = sha256(config.encode() + b"\0" + tokenizer.encode())
    for name, array in sorted(arrays.items()):
        mark.update(name.encode() + b"\0" + np.ascontiguousarray(array).tobytes())
    return f"sha256:{mark.hexdigest()}"


def _head(files: Fetch) -> _Head:
    """Raises `InputError` for modules of sentence-transformers that no runtime of ours has."""
    modules = files("modules.json")
    if isinstance(modules, list):
        return _sentence_head(modules, files)
    config = files("config.json")
    named = config.get("architectures") or [] if isinstance(config, dict) else []
    if any(str(one).endswith("ForSequenceClassification") for one in named):
        return _Head("classification")
    return _Head("embedding", "mean", False)


def _sentence_head(modules: list[Any], files: Fetch) -> _Head:
    """What follows the transformer: a pooling (without one the mean), perhaps a normalisation."""
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
    told = config if isinstance(config, dict) else {}
    named = told.get("pooling_mode")
    if isinstance(named, str):
        modes = [named]
    else:
        modes = [POOLINGS.get(key, key) for key in told if key.startswith("pooling_mode_") and told[key] is True]
    if len(modes) != 1 or modes[0] not in POOLINGS.values():
        raise InputError("pooling of the encoder", ", ".join(modes) or "none", "mean or cls")
    return modes[0]


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

    logging.set_verbosity_error()  # it tells at length of a pooler that no embedding uses
    logging.disable_progress_bar()
    kind: Any = AutoModelForSequenceClassification if head.kind == "classification" else AutoModel
    with torch.random.fork_rng():
        torch.manual_seed(0)  # what a checkpoint lacks (a pooler) is drawn: the same each time, or digests would differ
        made: nn.Module = kind.from_pretrained(name, attn_implementation="sdpa")
    return made.float().eval()


def _classes(model: nn.Module) -> tuple[str, ...]:
    """One output is a regressor's."""
    named: Mapping[int, str] = model.config.id2label  # type: ignore[union-attr,assignment]
    return tuple(named[number] for number in sorted(named)) if len(named) > 1 else ()


def _length(wanted: int | None, most: int | None, usual: int | None) -> int:
    """Tokens to read: those wanted, else the model's own, else as many as it has positions."""
    if wanted is None:
        return min(usual or UNBOUNDED, most or UNBOUNDED)
    if wanted < SHORTEST or (most is not None and wanted > most):
        raise InputError("max_length", wanted, f"from {SHORTEST} to {most or 'any'} tokens for this encoder")
    return wanted


@contextmanager
def _told(scheme: str, name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # whatever a reader or the network raises
        tell(scheme, name, error, "encoder", OFFLINE)
