"""Cuts a sequence classifier of transformers between two of its layers, so that it stops there and goes on from there.

A `Trunk` is a shallow copy of the model, with the same weights, in which every layer of the list is wrapped. In a pass
that stops, the layer behind the cut raises the hidden states that it is given. In a pass that goes on, the layers before
the cut hand on what they are given, and the one behind it runs on the stored hidden states instead; they also stand for
the embeddings, where one module gives these to the first layer. So masks, positions, numbers of layers and the head remain
the family's own code and configuration. Knows no heads of exits and no batching.

Shape suffixes: B batch, N tokens, D width of the hidden states, K outputs, R texts of the trial.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pliant.errors import ArtifactError
from pliant.models.classifier import layers as layers_of

Arguments = Mapping[str, Any]
"""Those of the model's forward: ids and, where there is padding, a mask."""

_LENGTHS = (4, 7)
"""Tokens of the texts on which a cut is tried."""
_TOLERANCE = 1e-4
"""How far logits of a cut model in float32 may be from those of the whole."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a pass goes on: behind so many layers, whose hidden states are given, padded with anything finite."""

    layers: int
    hidden_BND: Tensor


class Trunk:
    """A classifier that can be cut behind every number of layers that `check` has passed. Several threads may use it.

    Raises `ArtifactError` for a model that has no list of layers, or whose layers cannot be wrapped.
    """

    def __init__(self, model: nn.Module) -> None:
        stack = layers_of(model)
        path = next(name for name, child in model.named_modules() if child is stack)
        self._passes = _Passes()
        wrapped = [_Layer(layer, number, self._passes) for number, layer in enumerate(stack)]
        self._cut = _with(model, path, nn.ModuleList(wrapped).train(model.training))
        self._family, self._depth, self._checked = type(model).__name__, len(wrapped), set[int]()
        with torch.inference_mode(), _refusing(f"{self._family} cannot be cut"):
            self._trial = _trial(model)
            self._logit_RK = model(**self._trial).logits
            with _outputs(self._cut) as returned:
                _, (hidden_RND,) = self.through([0], self._trial)
            for number, layer in enumerate(wrapped):
                output = returned[f"{path}.{number}"]
                layer.returns = len(output) if isinstance(output, tuple) else 0
            embeds = next((name for name, output in returned.items() if output is hidden_RND), None)
            if embeds is not None:
                self._cut = _with(self._cut, embeds, _Embeddings(self._cut.get_submodule(embeds), self._passes))
            self.width = int(hidden_RND.shape[-1])

    def check(self, layers: Iterable[int]) -> None:
        """Try on two short texts whether a stop behind so many layers and the rest give the logits of the whole model.

        Raises `ArtifactError` where they do not, and for a number that leaves one part without layers.
        """
        for number in set(layers) - self._checked:
            what = f"{self._family} cannot be cut behind {number} of its layers"
            if not 1 <= number < self._depth:
                raise ArtifactError(f"{what}: its list has {self._depth}")
            with torch.inference_mode(), _refusing(what):
                logit_RK = self._in_parts(number)
            tolerance = max(_TOLERANCE, 4 * torch.finfo(logit_RK.dtype).eps)
            if not torch.allclose(logit_RK, self._logit_RK, atol=tolerance):
                raise ArtifactError(f"{what}: the parts give other logits than the whole model")
            self._checked.add(number)

    def until(self, layers: int, arguments: Arguments, start: Start | None = None) -> Tensor:
        """Return the hidden states [B, N, D] behind so many layers, as the next layer is given them."""
        try:
            self._run(_Pass(start, stop=layers), arguments)
        except _Reached as reached:
            return reached.hidden_BND
        raise ArtifactError(f"{self._family} never came to its layer {layers}")

    def rest(self, start: Start, arguments: Arguments) -> Tensor:
        """Return the logits [B, K]. The arguments are those of the whole model, ids included."""
        logits_BK: Tensor = self._run(_Pass(start), arguments).logits
        return logits_BK

    def through(self, layers: Sequence[int], arguments: Arguments) -> tuple[Tensor, list[Tensor]]:
        """Return the logits [B, K] of a whole pass and the hidden states [B, N, D] behind each number of layers."""
        through = _Pass(wanted=frozenset(layers))
        logits_BK: Tensor = self._run(through, arguments).logits
        return logits_BK, [through.taken[number] for number in layers]

    def _run(self, present: _Pass, arguments: Arguments) -> Any:
        self._passes.now = present
        try:
            return self._cut(**arguments)
        finally:
            self._passes.now = _Pass()

    def _in_parts(self, layers: int) -> Tensor:
        hidden_RND = self.until(layers, self._trial)
        padding_RN1 = self._trial["attention_mask"][..., None] == 0
        return self.rest(Start(layers, hidden_RND.masked_fill(padding_RN1, 0.0)), self._trial)


@dataclass(frozen=True, slots=True)
class _Pass:
    """What one pass through the layers does beside running them."""

    start: Start | None = None
    stop: int | None = None  # layers behind which it ends
    wanted: frozenset[int] = frozenset()  # numbers of layers behind which hidden states are taken
    taken: dict[int, Tensor] = field(default_factory=dict)  # [B, N, D] each


class _Passes(threading.local):
    """The present pass of each thread."""

    now = _Pass()


class _Reached(Exception):  # noqa: N818 - no error: it ends a pass that stops
    """The hidden states at the end of a pass that stops."""

    def __init__(self, hidden_BND: Tensor) -> None:
        super().__init__()
        self.hidden_BND = hidden_BND


class _Layer(nn.Module):
    """Stands for a layer, whose attributes it has. `returns`: values in the tuple that the layer returns; 0: a tensor."""

    returns = 0

    def __init__(self, layer: nn.Module, number: int, passes: _Passes) -> None:
        super().__init__()
        self.layer, self._number, self._passes = layer, number, passes

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("layer"), name)

    def forward(self, hidden_states: Tensor, *args: Any, **options: Any) -> Any:
        now, number = self._passes.now, self._number
        if now.start is not None and number < now.start.layers:
            return (hidden_states, *[None] * (self.returns - 1)) if self.returns else hidden_states
        if now.start is not None and number == now.start.layers:
            hidden_states = now.start.hidden_BND
        if number in now.wanted:
            now.taken[number] = hidden_states
        if number == now.stop:
            raise _Reached(hidden_states)
        return self.layer(hidden_states, *args, **options)


class _Embeddings(nn.Module):
    """Stands for the module whose output the first layer is given."""

    def __init__(self, module: nn.Module, passes: _Passes) -> None:
        super().__init__()
        self.module, self._passes = module, passes

    def forward(self, *args: Any, **options: Any) -> Any:
        start = self._passes.now.start
        return self.module(*args, **options) if start is None else start.hidden_BND


@contextmanager
def _outputs(model: nn.Module) -> Iterator[dict[str, object]]:
    """Yield what each module returns in the meantime, by its name, outer ones before those that they hold."""
    returned: dict[str, object] = dict.fromkeys(name for name, _ in model.named_modules())

    def note(name: str, *call: object) -> None:
        returned[name] = call[-1]

    hooks = [module.register_forward_hook(partial(note, name)) for name, module in model.named_modules()]
    try:
        yield returned
    finally:
        for hook in hooks:
            hook.remove()


def _with(model: nn.Module, path: str, replacement: nn.Module) -> nn.Module:
    """Return a copy of the model with another module at this path; it shares all others, and all weights."""
    clone, (name, _, rest) = copy(model), path.partition(".")
    module = _with(model.get_submodule(name), rest, replacement) if rest else replacement
    clone._modules = {**model._modules, name: module}
    return clone


def _trial(model: nn.Module) -> dict[str, Tensor]:
    """Return arguments with two short texts of random ids, padded; a family that needs an end token finds it at the end."""
    config: Any = model.config
    pad, end = getattr(config, "pad_token_id", None) or 0, getattr(config, "eos_token_id", None)
    usual = np.setdiff1d(np.arange(config.vocab_size), [pad, *([] if end is None else np.atleast_1d(end))])
    rng = np.random.default_rng(0)
    id_RN = np.full((len(_LENGTHS), max(_LENGTHS)), pad)
    for row, length in enumerate(_LENGTHS):
        id_RN[row, :length] = rng.choice(usual, length)
        if end is not None:
            id_RN[row, length - 1] = np.atleast_1d(end)[0]
    valid_RN = np.arange(max(_LENGTHS)) < np.array(_LENGTHS)[:, None]
    device = next(model.parameters()).device
    return {
        "input_ids": torch.from_numpy(id_RN).to(device),
        "attention_mask": torch.from_numpy(valid_RN).long().to(device),
    }


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    """Turn whatever a family's code makes of a cut, but for a lack of memory, into an `ArtifactError`."""
    try:
        yield
    except (ArtifactError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise ArtifactError(f"{what}: {type(error).__name__}: {error}") from error
