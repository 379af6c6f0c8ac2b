"""Where the encoders of the bins system come from: a classifier trained here, or a model of a folder or the hub.

A model with the head of a sequence classifier becomes a classifier; with a head of one output, such as a cross-encoder's,
it becomes a reranker. One without it, or of sentence-transformers (it has a modules.json), becomes an embedding, pooled and
normalised as that file says, with the prompts of its config_sentence_transformers.json.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from pliant.bins.artifact import Encoder
from pliant.bins.runtimes.model import load_model as load_headed
from pliant.errors import InputError
from pliant.models.artifact import Classifier
from pliant.models.classifier import load_model, positions, weights
from pliant.models.text import SHORTEST
from pliant.training import loading
from pliant.training.starts import SENTENCE, read_tokenizer, reading

SCHEMES = ("path", "hub")
OFFLINE = "the embedded encoder (embedded)"
"""What works without a network, besides a folder."""
CHECKED, LONGEST_CHECKED = (1.0, 0.5, 0.1), 512  # texts that a model is tried with: their lengths, and the longest
SPECIAL = 5  # token ids below are left out, as are most special ones
ALIKE = 1e-3  # of the largest number of an answer
ENDLESS = 10**9  # a model_max_length from here on is transformers' mark for no limit
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
    length = _length(max_length, positions(load_model(classifier)), None)
    values = (classifier.config, classifier.tokenizer, length, classifier.data, classifier.weights)
    return Encoder(name, "classification", classifier.classes, "", False, *values)


def load(address: str, name: str, max_length: int | None = None) -> Encoder:
    """Return the encoder at `path:FOLDER` or `hub:NAME`. Without `max_length` it reads as many tokens as it can.

    Raises `InputError`, and `OfflineError` where the hub is out of reach.
    """
    from transformers import AutoModel, AutoModelForSequenceClassification
    from transformers.utils import logging

    with reading(address, "encoder", "embedded", OFFLINE) as (_, rest):
        files: Fetch = partial(loading.read_json, rest, field="encoder")
        head, own = _head(files), _own_length(files)
        prompts = _prompts(files("config_sentence_transformers.json"))
        logging.set_verbosity_error()  # what it would list at length is looked at by loading.load
        logging.disable_progress_bar()
        classifies = head.kind == "classification"
        kind: Any = AutoModelForSequenceClassification if classifies else AutoModel
        with torch.random.fork_rng():
            torch.manual_seed(0)  # a missing pooler is drawn at random: always the same, so that digests agree
            model: nn.Module = loading.load(kind, rest, "encoder", loading.whole if classifies else loading.headless)
        model, tokens = model.float().eval(), read_tokenizer(rest)
        loading.check_tokens(tokens, model, rest, "encoder")
        _check_classes(model, head)
    tokenizer, length, arrays = tokens.to_str(), _length(max_length, positions(model), own), weights(model)
    config = model.config.to_json_string(use_diff=False)  # type: ignore[union-attr,operator]
    named: Mapping[int, str] = model.config.id2label  # type: ignore[union-attr,assignment]
    many = classifies and len(named) > 1  # a regressor, which has one output, has none
    classes = tuple(named[number] for number in sorted(named)) if many else ()
    data = fingerprint(config, tokenizer, arrays)
    values = (config, tokenizer, length, data, arrays, prompts)
    encoder = Encoder(name, head.kind, classes, head.pooling, head.normalize, *values)
    _check_answers(rest, encoder, model)
    return encoder


def _check_answers(name: str, encoder: Encoder, model: nn.Module) -> None:
    """Raise `InputError` unless the encoder answers as the model of transformers does, and alike beside longer texts."""
    kind, longest = type(model).__name__, min(encoder.max_length, LONGEST_CHECKED)
    config: Any = model.config
    draw, answers = torch.Generator().manual_seed(0), "a model that answers as in transformers"
    try:
        headed = load_headed(encoder)
        low = min(SPECIAL, config.vocab_size - 1)
        id_BN = torch.randint(low, config.vocab_size, (len(CHECKED), longest), generator=draw)
        lengths = [max(1, round(share * longest)) for share in CHECKED]
        valid_BN = (torch.arange(longest) < torch.tensor(lengths)[:, None]).long()
        id_BN = torch.where(valid_BN == 1, id_BN, headed.pad)
        types = (torch.zeros_like(id_BN),) if headed.typed else ()
        with torch.no_grad():
            together_BK = headed(id_BN, valid_BN, *types)
            for row, length in enumerate(lengths):
                alone_1N = id_BN[row : row + 1, :length]
                alone_K = headed(
                    alone_1N, torch.ones_like(alone_1N), *(each[row : row + 1, :length] for each in types)
                )[0]
                output = model(input_ids=alone_1N, attention_mask=torch.ones_like(alone_1N))
                if encoder.head == "classification":
                    wanted_K = output.logits[0]
                else:
                    wanted_K = headed.pooled(output.last_hidden_state, torch.ones_like(alone_1N))[0]
                for got_K, where in ((alone_K, "alone"), (together_BK[row], "beside longer texts")):
                    difference = float((got_K - wanted_K).abs().max() / wanted_K.abs().max().clamp(min=1e-6))
                    if not difference <= ALIKE:
                        value = f"{name}, whose {kind} answers otherwise {where}, with {length} tokens"
                        value += f" (by {difference:.1%} of the largest number)"
                        raise InputError("encoder", value, answers)
    except InputError:
        raise
    except Exception as error:  # models raise all kinds for what they are not made for
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(
            "encoder", f"{name}, whose {kind} cannot be run by token ids and a mask alone: {reason}", answers
        ) from error


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
    """Return what follows the transformer: a pooling (the mean if there is none) and perhaps a normalisation.

    Raises `InputError` for another module, and for a transformer in a folder of its own.
    """
    pooling, normalize = "mean", False
    for module in modules:
        match str(module["type"]).rsplit(".", 1)[-1]:
            case "Transformer" if module.get("path"):
                raise InputError(
                    "folder of the encoder's transformer", module["path"], "the model's own, as modules.json names it"
                )
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
    if settings.get("include_prompt") is False:
        raise InputError(
            "include_prompt of the encoder", "false", "true or left out: prompts are pooled as any text is"
        )
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
    """Return the prompts by name; none where the model has no such file. Raises `InputError` for what is not served."""
    settings = config if isinstance(config, dict) else {}
    for key in ("default_prompt_name", "truncate_dim"):
        if settings.get(key) is not None:
            instead = (
                "name the prompt in each request" if key == "default_prompt_name" else "set dimensions in each request"
            )
            raise InputError(
                f"{key} of the encoder", settings[key], f"null in config_sentence_transformers.json: {instead}"
            )
    prompts = settings.get("prompts")
    if not isinstance(prompts, dict):
        return {}
    return {str(name): prompt for name, prompt in prompts.items() if isinstance(prompt, str)}


def _own_length(files: Fetch) -> int | None:
    """Return the most tokens that the files beside the weights allow, or None: sentence-transformers' go first."""
    for name, key in (*((name, "max_seq_length") for name in SENTENCE), ("tokenizer_config.json", "model_max_length")):
        settings = files(name)
        length = settings.get(key) if isinstance(settings, dict) else None
        if isinstance(length, int | float) and 0 < length < ENDLESS:
            return int(length)
    return None


def _check_classes(model: nn.Module, head: _Head) -> None:
    """Raise `InputError` for a head whose scores are not those of classes that exclude each other."""
    if head.kind != "classification":
        return
    config: Any = model.config
    kind, named = config.problem_type, config.id2label
    if kind == "multi_label_classification" or (kind == "regression" and len(named) > 1):
        raise InputError(
            "problem_type of the encoder", kind, "single_label_classification: a softmax over classes is served"
        )
    if sorted(named) != list(range(len(named))) or len(set(named.values())) < len(named):
        raise InputError("id2label of the encoder", named, "a name for each number from 0, none of them twice")


def _length(wanted: int | None, limit: int | None, own: int | None) -> int:
    """Return the tokens to read: those wanted, else the model's own number, else its positions."""
    if wanted is None:
        return min(own or UNBOUNDED, limit or UNBOUNDED)
    if wanted < SHORTEST or (limit is not None and wanted > limit):
        raise InputError("max_length", wanted, f"from {SHORTEST} to {limit or 'any'} tokens for this encoder")
    return wanted
