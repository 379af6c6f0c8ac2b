"""Bins in the acceptance kit of GPUs: each engine's latency by length bin, over one runtime of the full length.

Seconds are those of a whole call: padding, copies there and back, every layer. They do not depend on the weights' values,
so random ones serve.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from pliant.benchmarks.results import Add, Target
from pliant.benchmarks.runs import medians_in_turns
from pliant.bins.artifact import Encoder, Shape
from pliant.bins.runtimes.compile import compile_encoder
from pliant.bins.runtimes.model import module
from pliant.bins.runtimes.runtime import BinsRuntime
from pliant.errors import PliantError
from pliant.models.classifier import weights

LESS = 0.25  # by how much the mean latency in bins must be lower than that of one runtime of the full length
REQUESTS = 1000


@dataclass(frozen=True, slots=True)
class Config:
    """`lengths` of bins in tokens; the last is the full one.."""

    sizes: Mapping[str, int]
    lengths: tuple[int, ...] = (64, 128, 256, 512)
    rounds: int = 30


ENGINES: Mapping[str, tuple[str, ...]] = {"cuda": ("graphs", "eager"), "cpu": ("onnx", "eager")}
"""By type of device, in this order: first the one that is served there, whose figure is a target."""
FULL = Config({"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072})
TINY = Config(
    {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}, (8, 64), rounds=5
)


def random_encoder(sizes: Mapping[str, int], longest: int, seed: int = 0) -> Encoder:
    """Return a BERT of random weights."""
    bert = {"model_type": "bert", "max_position_embeddings": longest, **sizes}
    torch.manual_seed(seed)
    values = weights(module(bert, "embedding"))
    return Encoder("random", "embedding", (), "mean", True, json.dumps(bert), "", longest, "random", values)


def measure(device: str, tiny: bool, add: Add) -> None:
    """Measure each engine of the device as a part of its own; one that cannot be used here says why."""
    config = TINY if tiny else FULL
    longest = config.lengths[-1]
    encoder = random_encoder(config.sizes, longest)
    # Most requests are short: log-normal around an eighth of the longest.
    drawn = np.random.default_rng(0).lognormal(np.log(longest / 8), 0.8, REQUESTS)
    requests = np.clip(drawn, 2, longest).astype(np.int64)
    served, *_ = engines = ENGINES[torch.device(device).type]
    for engine in engines:
        try:
            shapes = [Shape(length, 1) for length in config.lengths]
            with TemporaryDirectory(prefix="pliant-bins-") as folder:
                files = compile_encoder(encoder, engine, Path(folder), device)
                runtime = BinsRuntime(encoder, shapes, engine, Path(folder), files, device, torch.get_num_threads())
                # All bins in turns, one text a call with a token of padding.
                texts = [(np.ones(n - 1, np.int32), np.zeros(n - 1, np.int8)) for n in config.lengths]
                calls = [partial(runtime.run, number, [text]) for number, text in enumerate(texts)]
                seconds = np.array(medians_in_turns(calls, config.rounds))
        except (PliantError, ImportError) as error:
            add(engine, [], {"left out": str(error)})
            continue
        # Over requests, each in the shortest bin that holds it, against all in the bin of the full length.
        mean, full = float(seconds[np.searchsorted(config.lengths, requests)].mean()), float(seconds[-1])
        rows = [
            {"bin": length, "ms": 1e3 * each, "over the full length": each / full}
            for length, each in zip(config.lengths, seconds.tolist(), strict=True)
        ]
        name = f"{engine}: mean latency in bins over one runtime of {config.lengths[-1]} tokens"
        target = Target(name, mean / full, "<=", 1 - LESS, "x")
        add(engine, [target] if engine == served else [], {"mean ms": 1e3 * mean, "full ms": 1e3 * full, "rows": rows})
