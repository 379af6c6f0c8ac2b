"""Runs batches of tokenized texts through one of several classifiers on a device. Decides nothing, tokenizes nothing.

Weights are converted to the precision of the plan once, when they are loaded; a CPU packs them as well.

Shape suffixes: B batch, N tokens, K outputs.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import gelu

from pliant.cascade.attention import Received, watch
from pliant.errors import InputError
from pliant.models.artifact import Classifier
from pliant.models.classifier import layers, load_model, positions, typed
from pliant.models.execution import PackedLinear, Pieces, can_pack
from pliant.precision import FLOAT32, PRECISIONS, convert, dtype_of

Payload = tuple[NDArray[np.int32], NDArray[np.int8]]
"""The ids [N] and the types [N] of the tokens of one text, special ones included."""


@dataclass(frozen=True, slots=True)
class Execution:
    """How to compute: the precision of weights and products, and whether a CPU packs its weights."""

    precision: str = FLOAT32
    packed: bool = True

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise InputError("precision", self.precision, f"one of {', '.join(PRECISIONS)}")


@dataclass(frozen=True, slots=True)
class Run:
    """The results of one launch, one for each text. `seconds` include copies to and from the device."""

    logits: list[NDArray[np.float32]]  # [K] each
    importance: list[NDArray[np.float32]] | None  # [N] each: attention that tokens received, over heads and layers
    seconds: float


@dataclass(frozen=True, slots=True)
class _Loaded:
    name: str
    module: nn.Module
    typed: bool  # takes token types
    most: int | None  # tokens that it can read; None: any number
    pad: int  # id of the padding token
    watched: bool  # can measure importance


class CascadeRuntime:
    """Classifiers by number on one device. Several threads may call `run` at once.

    Raises `InputError` for a precision that the device lacks, `ArtifactError` for weights that do not fit.
    """

    def __init__(
        self,
        classifiers: Mapping[int, Classifier],
        device: str = "cpu",
        execution: Execution | Mapping[int, Execution] = Execution(),
    ) -> None:
        """`execution`: how all classifiers compute, or each by its number."""
        self._device, self._pieces = torch.device(device), Pieces(torch.device(device))
        self._models = {
            number: _load(
                classifier, self._device, execution if isinstance(execution, Execution) else execution[number]
            )
            for number, classifier in classifiers.items()
        }

    def run(self, model: int, payloads: Sequence[Payload], importance: bool = False) -> Run:
        """Return the logits of a batch, padded to its longest text, and if asked the importance of its tokens (Eq. 5).

        A batch that the device lacks memory for runs in pieces.

        Raises `InputError` for an unknown model, no texts, a text longer than the model can read, and for `importance`
        of a model without transformers' attention interface.
        """
        start = time.perf_counter()
        loaded = self._check(model, payloads)
        if importance and not loaded.watched:
            raise _unwatched(loaded)
        run = partial(self._run_piece, loaded, importance)
        rows = self._pieces.run(model, f"a batch of {loaded.name}", payloads, run, run)
        logits, received = [row for row, _ in rows], [row for _, row in rows if row is not None]
        return Run(logits, received if importance else None, time.perf_counter() - start)

    def _run_piece(
        self, loaded: _Loaded, importance: bool, payloads: Sequence[Payload]
    ) -> list[tuple[NDArray[np.float32], NDArray[np.float32] | None]]:
        """Return for each text its logits and, where it is wanted, the importance of its tokens."""
        with torch.inference_mode():
            arguments, valid_BN = self._pad(loaded, payloads)
            received = Received(valid_BN) if importance else None
            if received is not None:
                arguments["received"] = received
            logit_BK = loaded.module(**arguments).logits.float().cpu().numpy()  # waits for the device
        if received is None:
            return [(row, None) for row in logit_BK]
        return list(zip(logit_BK, _cut(_total(received, loaded), payloads), strict=True))

    def _check(self, model: int, payloads: Sequence[Payload]) -> _Loaded:
        if model not in self._models:
            raise InputError("model", model, f"one of {sorted(self._models)}")
        loaded = self._models[model]
        if not payloads:
            raise InputError("payloads", "empty", "at least one text")
        longest = max(len(ids) for ids, _ in payloads)
        if loaded.most is not None and longest > loaded.most:
            raise InputError("text", f"{longest} tokens long", f"at most {loaded.most} for {loaded.name}")
        return loaded

    def _pad(self, loaded: _Loaded, payloads: Sequence[Payload]) -> tuple[dict[str, Any], Tensor | None]:
        """Return the model's arguments and the mask of tokens [B, N], or None without padding: a mask costs time."""
        lengths = [len(ids) for ids, _ in payloads]
        id_BN = np.full((len(lengths), max(lengths)), loaded.pad, dtype=np.int64)
        type_BN = np.zeros_like(id_BN)
        for row, (ids, types) in enumerate(payloads):
            id_BN[row, : len(ids)], type_BN[row, : len(ids)] = ids, types
        arguments = {"input_ids": self._move(id_BN)}
        if loaded.typed:
            arguments["token_type_ids"] = self._move(type_BN)
        if min(lengths) == max(lengths):
            return arguments, None
        valid_BN = self._move(np.arange(max(lengths)) < np.asarray(lengths)[:, None])
        return arguments | {"attention_mask": valid_BN.long()}, valid_BN

    def _move(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self._device)


def _load(classifier: Classifier, device: torch.device, execution: Execution) -> _Loaded:
    dtype = dtype_of(execution.precision, device)
    model = convert(load_model(classifier), dtype)
    parameters = inspect.signature(model.forward).parameters
    config: Any = model.config
    pad = getattr(config, "pad_token_id", None) or 0
    most = positions(model)
    watched = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    watch(model)
    if execution.packed and device.type == "cpu" and can_pack():
        model = _packed(model, classifier, dtype)
    model.requires_grad_(False)
    return _Loaded(classifier.name, model.to(device), typed(model), most, pad, watched)


def _packed(model: nn.Module, classifier: Classifier, dtype: torch.dtype) -> nn.Module:
    """Return the model with packed weights, unless its code accesses the linear layers, as T5's does."""
    pack(model)
    try:
        with torch.inference_mode():
            model(input_ids=torch.ones(1, 2, dtype=torch.long))
    except AttributeError:
        model = convert(load_model(classifier), dtype)
        watch(model)
    return model


def _total(received: Received, loaded: _Loaded) -> NDArray[np.float32]:
    if received.total_BM is None:
        raise _unwatched(loaded)
    total_BN: NDArray[np.float32] = received.total_BM.cpu().numpy()
    return total_BN


def _unwatched(loaded: _Loaded) -> InputError:
    return InputError(
        "importance", f"asked of {loaded.name}", "asked of a model with transformers' attention interface"
    )


def _cut(total_BN: NDArray[np.float32], payloads: Sequence[Payload]) -> list[NDArray[np.float32]]:
    return [row[: len(ids)].copy() for row, (ids, _) in zip(total_BN, payloads, strict=True)]


_THEN = {"dense": "intermediate_act_fn", "lin1": "activation"}
"""Name of a linear layer -> name of the activation behind it, in the families of BERT and DistilBERT."""


def pack(model: nn.Module) -> None:
    """Replace the linear layers of every encoder layer by packed ones, in place, together with an
    exact GELU behind one. For inference on a CPU: a packed layer can be neither moved, saved nor trained.

    Raises `ArtifactError` for a model without a list of layers.
    """
    for parent in list(layers(model).modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                after = _THEN.get(name, "")
                fused = _exact_gelu(getattr(parent, after, None))
                setattr(parent, name, PackedLinear(child, "gelu" if fused else "none"))
                if fused:
                    setattr(parent, after, nn.Identity())


def _exact_gelu(activation: object) -> bool:
    """Whether the activation is the GELU that oneDNN has: torch's exact one, or transformers' wrapper of it."""
    if isinstance(activation, nn.GELU):
        return activation.approximate == "none"
    return getattr(activation, "act", None) is gelu
