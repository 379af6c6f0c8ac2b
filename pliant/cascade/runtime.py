"""Runs batches of tokenized texts through classifiers, or parts of them, on a device. Decides nothing, tokenizes nothing.

Weights are converted to the precision of the plan once, when they are loaded; a CPU packs them as well. An exit keeps the
hidden states of its texts on the device, and a part behind it goes on from them. Where they are gone, or were never there,
it runs the layers before it too: its answers are the same.

Shape suffixes: B batch, N tokens, D width of hidden states, H width of an exit's head, K outputs, L numbers of layers.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import gelu, linear
from torch.nn.utils.rnn import pad_sequence

from pliant.cascade.artifact import Exit
from pliant.cascade.attention import Received, watch
from pliant.cascade.states import Key, States
from pliant.cascade.trunk import Start, Trunk
from pliant.errors import ArtifactError, InputError
from pliant.models.artifact import Classifier
from pliant.models.classifier import layers, load_model, positions, typed
from pliant.models.execution import PackedLinear, Pieces, can_pack
from pliant.precision import FLOAT32, PRECISIONS, convert, dtype_of

Payload = tuple[NDArray[np.int32], NDArray[np.int8]]
"""The ids [N] and the types [N] of the tokens of one text, special ones included."""

STATES = {"cpu": 64 * 1024**2, "cuda": 512 * 1024**2}
"""Bytes of hidden states that are kept, by the kind of device."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a number runs: a classifier from behind its first `begin` layers on, up to an exit or to its own head."""

    classifier: Classifier
    begin: int = 0
    exit: Exit | None = None

    def __post_init__(self) -> None:
        most = None if self.exit is None else self.exit.layers - 1
        if self.begin < 0 or (most is not None and self.begin > most):
            raise InputError("begin", self.begin, "at least 0 and less than the layers of the exit")

    @property
    def name(self) -> str:
        """The name of the level."""
        return self.classifier.name if self.exit is None else self.exit.name


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


@dataclass(frozen=True, slots=True)
class _Head:
    """An exit's head on the device, in float32."""

    layers: int  # of the classifier that are before it
    into_HF: Tensor  # F: twice D
    into_H: Tensor
    out_KH: Tensor
    out_K: Tensor

    def __call__(self, feature_BF: Tensor) -> Tensor:
        return linear(gelu(linear(feature_BF, self.into_HF, self.into_H)), self.out_KH, self.out_K)


@dataclass(frozen=True, slots=True)
class _Ready:
    """A part that can run."""

    name: str
    model: _Loaded
    shared: int  # number of the model among those loaded
    begin: int
    head: _Head | None = None  # of the exit; None: runs to the classifier's own
    trunk: Trunk | None = None  # None: the whole classifier

    def key(self, layers: int, payload: Payload) -> Key:
        ids, types = payload
        return self.shared, layers, ids.tobytes(), types.tobytes()


class CascadeRuntime:
    """Classifiers, and parts of them, by number on one device. Several threads may call `run` at once.

    Parts of the same `Classifier`, which compute in the same way, share its weights and its hidden states.

    Raises `InputError` for a precision that the device lacks, `ArtifactError` for weights that do not fit, an exit of
    another width than its classifier, and a classifier that cannot be cut where a part begins or ends.
    """

    def __init__(
        self,
        parts: Mapping[int, Part | Classifier],
        device: str = "cpu",
        execution: Execution | Mapping[int, Execution] = Execution(),
    ) -> None:
        """`execution`: how all parts compute, or each by its number."""
        self._device, self._pieces = torch.device(device), Pieces(torch.device(device))
        self._states = States(STATES.get(self._device.type, STATES["cpu"]))
        self._models: list[_Loaded] = []
        self._trunks: dict[int, Trunk] = {}  # by the number of the model
        self._cutting = threading.Lock()
        self._parts: dict[int, _Ready] = {}
        numbers: dict[tuple[int, Execution], int] = {}
        for number, part in parts.items():
            whole = part if isinstance(part, Part) else Part(part)
            way = execution if isinstance(execution, Execution) else execution[number]
            shared = numbers.setdefault((id(whole.classifier), way), len(self._models))
            if shared == len(self._models):
                self._models.append(_load(whole.classifier, self._device, way))
            self._parts[number] = self._ready(whole, shared)

    def run(self, number: int, payloads: Sequence[Payload], importance: bool = False) -> Run:
        """Return the logits of a batch, padded to its longest text, and if asked the importance of its tokens (Eq. 5).

        A batch that the device lacks memory for runs in pieces. A part that runs to the classifier's head takes the hidden
        states that it went on from.

        Raises `InputError` for an unknown number, no texts, a text longer than the model can read, and for `importance`
        of a model without transformers' attention interface, an exit, or a part that goes on from one.
        """
        start = time.perf_counter()
        part = self._check(number, payloads)
        if importance and part.trunk is not None:
            raise InputError("importance", f"asked of {part.name}", "asked of a classifier that runs whole")
        if importance and not part.model.watched:
            raise _unwatched(part.model)
        run = partial(self._run_piece, part, importance)
        rows = self._pieces.run(number, f"a batch of {part.name}", payloads, run, run)
        if part.begin and part.head is None:
            self._states.drop(part.key(part.begin, payload) for payload in payloads)
        logits, received = [row for row, _ in rows], [row for _, row in rows if row is not None]
        return Run(logits, received if importance else None, time.perf_counter() - start)

    def advance(self, number: int, payloads: Sequence[Payload]) -> None:
        """Run the layers before those of a part and keep the hidden states, as an exit there does, but without an answer.

        Then the next launch of the part with these texts goes on from them. Raises `InputError` as `run` does.
        """
        part = self._check(number, payloads)
        if part.begin and part.trunk is not None:
            run = partial(self._advance_piece, part, part.trunk)
            self._pieces.run(number, f"a batch of {part.name}", payloads, run, run)

    def hidden(
        self, number: int, payloads: Sequence[Payload], layers: Sequence[int]
    ) -> tuple[list[NDArray[np.float32]], list[NDArray[np.float32]]]:
        """Run the classifier whole. Return each text's logits [K], and what exits behind so many layers read [L, 2 D].

        That is the mean and then the maximum of the hidden states over the text's tokens. Raises `InputError` as `run`
        does and without layers, `ArtifactError` for a classifier that cannot be cut there.
        """
        part = self._check(number, payloads)
        if not layers:
            raise InputError("layers", "empty", "at least one number")
        run = partial(self._hidden_piece, part.model, self._trunk(part.shared, layers), layers)
        rows = self._pieces.run(number, f"a batch of {part.name}", payloads, run, run)
        return [logit_K for logit_K, _ in rows], [feature_LF for _, feature_LF in rows]

    def _run_piece(
        self, part: _Ready, importance: bool, payloads: Sequence[Payload]
    ) -> list[tuple[NDArray[np.float32], NDArray[np.float32] | None]]:
        """Return for each text its logits and, where it is wanted, the importance of its tokens."""
        with torch.inference_mode():
            arguments, valid_BN = self._pad(part.model, payloads)
            received = Received(valid_BN) if importance else None
            if received is not None:
                arguments["received"] = received
            if part.trunk is None:
                answer_BK = part.model.module(**arguments).logits
            else:
                answer_BK = self._run_cut(part, part.trunk, payloads, arguments, valid_BN)
            logit_BK = answer_BK.float().cpu().numpy()  # waits for the device
        if received is None:
            return [(row, None) for row in logit_BK]
        return list(zip(logit_BK, _cut(_total(received, part.model), payloads), strict=True))

    def _run_cut(
        self,
        part: _Ready,
        trunk: Trunk,
        payloads: Sequence[Payload],
        arguments: dict[str, Any],
        valid_BN: Tensor | None,
    ) -> Tensor:
        """Return the logits [B, K] of a part. Those that begin behind the first layer go on from kept states, if all are."""
        start = None
        if part.begin:
            states = self._states.get([part.key(part.begin, payload) for payload in payloads])
            start = None if states is None else Start(part.begin, pad_sequence(states, batch_first=True))
        if part.head is None:
            answer_BK: Tensor = part.model.module(**arguments).logits if start is None else trunk.rest(start, arguments)
            return answer_BK
        hidden_BND = trunk.until(part.head.layers, arguments, start)
        self._keep(part, part.head.layers, payloads, hidden_BND)
        return part.head(features(hidden_BND, valid_BN))

    def _advance_piece(self, part: _Ready, trunk: Trunk, payloads: Sequence[Payload]) -> list[None]:
        with torch.inference_mode():
            arguments, _ = self._pad(part.model, payloads)
            self._keep(part, part.begin, payloads, trunk.until(part.begin, arguments))
        return [None] * len(payloads)

    def _hidden_piece(
        self, model: _Loaded, trunk: Trunk, layers: Sequence[int], payloads: Sequence[Payload]
    ) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        with torch.inference_mode():
            arguments, valid_BN = self._pad(model, payloads)
            answer_BK, hidden = trunk.through(layers, arguments)
            feature_BLF = torch.stack([features(hidden_BND, valid_BN) for hidden_BND in hidden], dim=1)
            return list(zip(answer_BK.float().cpu().numpy(), feature_BLF.cpu().numpy(), strict=True))

    def _keep(self, part: _Ready, layers: int, payloads: Sequence[Payload], hidden_BND: Tensor) -> None:
        """Keep the hidden states of each text's own tokens, apart from the batch's memory."""
        rows = zip(payloads, hidden_BND, strict=True)
        self._states.put((part.key(layers, payload), row_ND[: len(payload[0])].clone()) for payload, row_ND in rows)

    def _ready(self, part: Part, shared: int) -> _Ready:
        """Return the part, after trying its cuts."""
        model = self._models[shared]
        if part.exit is None and not part.begin:
            return _Ready(part.name, model, shared, 0)
        cuts = (*([part.begin] if part.begin else []), *([] if part.exit is None else [part.exit.layers]))
        trunk = self._trunk(shared, cuts)
        if part.exit is None:
            return _Ready(part.name, model, shared, part.begin, trunk=trunk)
        reads = part.exit.into.shape[1]
        if reads != 2 * trunk.width:
            raise ArtifactError(
                f"the exit {part.exit.name} reads {reads} numbers, but {part.classifier.name} gives {2 * trunk.width}"
            )
        weights = (part.exit.into, part.exit.into_bias, part.exit.out, part.exit.out_bias)
        head = _Head(part.exit.layers, *(self._move(np.array(weight, np.float32)) for weight in weights))
        return _Ready(part.name, model, shared, part.begin, head, trunk)

    def _trunk(self, shared: int, layers: Sequence[int]) -> Trunk:
        """Return a model's trunk, tried at these cuts."""
        with self._cutting:
            if shared not in self._trunks:
                self._trunks[shared] = Trunk(self._models[shared].module)
            self._trunks[shared].check(layers)
            return self._trunks[shared]

    def _check(self, number: int, payloads: Sequence[Payload]) -> _Ready:
        if number not in self._parts:
            raise InputError("model", number, f"one of {sorted(self._parts)}")
        part = self._parts[number]
        if not payloads:
            raise InputError("payloads", "empty", "at least one text")
        longest, most = max(len(ids) for ids, _ in payloads), part.model.most
        if most is not None and longest > most:
            raise InputError("text", f"{longest} tokens long", f"at most {most} for {part.name}")
        return part

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


def features(hidden_BND: Tensor, valid_BN: Tensor | None = None) -> Tensor:
    """Return what exits read [B, 2 D], in float32: the mean and the maximum over each text's tokens; None: all are."""
    hidden_BND = hidden_BND.float()
    if valid_BN is None:
        return torch.cat([hidden_BND.mean(1), hidden_BND.amax(1)], dim=1)
    valid_BN1 = valid_BN[:, :, None]
    mean_BD = hidden_BND.masked_fill(~valid_BN1, 0.0).sum(1) / valid_BN1.sum(1)
    return torch.cat([mean_BD, hidden_BND.masked_fill(~valid_BN1, -torch.inf).amax(1)], dim=1)


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
