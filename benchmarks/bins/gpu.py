"""BERT-base and BERT-large at batch 1 on the GPU of this machine: `python -m benchmarks.bins.gpu --lengths FILE.npy`.

A CUDA graph per length bin against one dynamic runtime: eager, and `torch.compile(dynamic=True)`. Seconds are those of a
whole call: padding, copies there and back, every layer. They do not depend on the weights' values, so random ones serve.
The mean is over the lengths of requests, given as an array; each is served by the shortest bin that holds it. Needs
torch, transformers, numpy and scipy alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.results import Target, exit_status, write
from benchmarks.timing import seconds_of
from pliant.bins.artifact import Shape
from pliant.bins.planning.edges import choose_edges
from pliant.bins.runtimes.graphs import Call, EagerEngine, GraphsEngine
from pliant.bins.runtimes.model import HeadedEncoder, module
from pliant.bins.runtimes.padding import padded
from pliant.device import device_class
from pliant.errors import InputError
from pliant.models.graphs import Capture, CudaCapture
from pliant.precision import check_precision

SIZES: Mapping[str, Mapping[str, int]] = {
    "bert-base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
    "bert-large": {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
}
CONTENDERS = ("graphs", "eager", "compiled")
DYNAMIC = CONTENDERS[1:]
LESS = 0.25  # by how much the mean latency must be lower than either dynamic one's


@dataclass(frozen=True, slots=True)
class GpuConfig:
    """Seconds are measured at every `step` tokens up to `longest`, each contender once a round, in turns."""

    sizes: Mapping[str, Mapping[str, int]]
    step: int = 32
    longest: int = 512
    bins: int = 8
    rounds: int = 30
    warmup: int = 3
    precision: str = "float32"

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(range(self.step, self.longest + 1, self.step))


@dataclass(frozen=True, slots=True)
class Measured:
    """Median seconds [contender, length] of one size; the dynamic ones unpadded, the graphs with padding."""

    size: str
    device: str
    lengths: tuple[int, ...]
    seconds_CL: NDArray[np.float64]

    def mean(self, contender: str, requests: NDArray[np.int64], edges: Sequence[int]) -> float:
        """Return the mean seconds over the requests. Graphs: of the shortest bin; dynamic: interpolated at the length."""
        seconds_L = self.seconds_CL[CONTENDERS.index(contender)]
        at = np.asarray(edges)[np.searchsorted(edges, requests)] if contender == "graphs" else requests
        return float(np.interp(at, self.lengths, seconds_L).mean())

    def edges(self, requests: NDArray[np.int64], count: int) -> tuple[int, ...]:
        """Return the lengths of at most `count` bins that make the graphs' mean least, of those measured."""
        longest = self.lengths[-1]
        seconds_N = np.interp(np.arange(longest + 1), self.lengths, self.seconds_CL[CONTENDERS.index("graphs")])
        return choose_edges(np.bincount(requests, minlength=longest + 1), seconds_N, count, self.lengths)

    def targets(self, requests: NDArray[np.int64], count: int) -> list[Target]:
        edges = self.edges(requests, count)
        graphs = self.mean("graphs", requests, edges)
        name = f"{self.size} on {self.device}, mean latency of {len(edges)} bins over that of {{}} with dynamic shapes"
        ratios = {other: graphs / self.mean(other, requests, edges) for other in DYNAMIC}
        return [Target(name.format(other), ratio, "<=", 1 - LESS, "x") for other, ratio in ratios.items()]

    def plain(self, requests: NDArray[np.int64], count: int) -> dict[str, Any]:
        edges = self.edges(requests, count)
        rows = {name: list(map(float, row)) for name, row in zip(CONTENDERS, self.seconds_CL, strict=True)}
        means = {name: self.mean(name, requests, edges) for name in CONTENDERS}
        return {"device": self.device, "lengths": self.lengths, "seconds": rows, "bins": edges, "mean_seconds": means}


def measure(size: str, config: GpuConfig, device: str = "cuda", capture: Capture | None = None) -> Measured:
    """Time every contender at every length. Raises `InputError` without such a device, or where it lacks the precision.

    `capture`: how graphs are recorded, CUDA's own by default.
    """
    name, where = device_class(device), torch.device(device)
    check_precision(config.precision, where)
    model = _model(config, size).to(where, getattr(torch, config.precision))
    graphs = GraphsEngine(model, model.inputs, where, capture or CudaCapture(where))
    compiled = torch.compile(model, dynamic=True)
    shapes = [Shape(length, 1) for length in reversed(config.lengths)]  # the largest graph first
    static = {shape.length: graphs.open(shape) for shape in shapes}
    dynamic = [EagerEngine(forward, where).open(shapes[0]) for forward in (model, compiled)]
    calls_LC = [
        [_call(static[n], model, n, full=False), *(_call(call, model, n, full=True) for call in dynamic)]
        for n in config.lengths
    ]
    rounds = config.warmup + config.rounds
    seconds = [[[seconds_of(call) for call in row] for row in calls_LC] for _ in range(rounds)]
    return Measured(size, name, config.lengths, np.median(seconds[config.warmup :], axis=0).T)


def requests_of(array: NDArray[Any], longest: int) -> NDArray[np.int64]:
    """Return lengths of requests. Raises `InputError` for none, and for lengths that no bin holds."""
    lengths = np.asarray(array).ravel().astype(np.int64)
    if not len(lengths) or lengths.min() < 1 or lengths.max() > longest:
        raise InputError("lengths", lengths, f"at least one, 1 to {longest} tokens each")
    return lengths


def _model(config: GpuConfig, size: str) -> HeadedEncoder:
    options = {"model_type": "bert", "max_position_embeddings": config.longest, **config.sizes[size]}
    return HeadedEncoder(module(options, "embedding"), "embedding", "mean", True).eval().requires_grad_(False)


def _call(call: Call, model: HeadedEncoder, length: int, full: bool) -> Callable[[], object]:
    """Serve one text, padding included. Not full: a token shorter than the shape, so that there is padding."""
    ids = np.ones(length if full else max(1, length - 1), dtype=np.int32)
    shape, payloads = Shape(length, 1), [(ids, np.zeros(len(ids), dtype=np.int8))]
    return lambda: call(padded(shape, payloads, model.pad, model.typed))


def _requests(file: Path | None, longest: int) -> tuple[NDArray[np.int64], str]:
    if file is not None:
        return requests_of(np.load(file, allow_pickle=False), longest), file.name
    from benchmarks.bins.traces import missing, stretched

    if reason := missing():
        raise InputError("lengths", "not given", f"a file of numpy's: {reason}")
    return requests_of(stretched()[0], longest), "Twitter, stretched to 512"


def missing() -> str:
    """Return why nothing can be measured here; empty if it can."""
    return "" if torch.cuda.is_available() else "no GPU"


def measure_all(file: Path | None = None, precision: str = "float32") -> tuple[list[Target], dict[str, Any]]:
    """Measure all sizes, and print a table of each. `file`: the requests' lengths, a .npy file."""
    config = GpuConfig(SIZES, precision=precision)
    requests, source = _requests(file, config.longest)
    targets: list[Target] = []
    details: dict[str, Any] = {"config": asdict(config), "requests": source}
    for size in config.sizes:
        measured = measure(size, config)
        targets += measured.targets(requests, config.bins)
        details[size] = measured.plain(requests, config.bins)
        _print(measured, details[size])
    return targets, details


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="CUDA graphs per length bin against dynamic shapes, at batch 1.")
    parser.add_argument("--lengths", type=Path, help="tokens of requests, a .npy file; the Twitter trace's if left out")
    parser.add_argument("--precision", choices=("float32", "float16", "bfloat16"), default="float32")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"), help="folder for the JSON")
    options = parser.parse_args(arguments)
    if reason := missing():
        print(f"skipped: {reason}")
        return 0
    targets, details = measure_all(options.lengths, options.precision)
    for target in targets:
        print(f"{target.name}: {target.measured:.3f} {target.sense} {target.limit} {target.verdict}")
    print(f"Written to {write(options.out, 'bins-gpu', targets, details)}")
    return exit_status(targets)


def _print(measured: Measured, details: Mapping[str, Any]) -> None:
    print(f"{measured.size} on {measured.device}, bins {details['bins']}, milliseconds")
    print("tokens  " + " ".join(f"{length:>6}" for length in measured.lengths))
    for name, row in zip(CONTENDERS, measured.seconds_CL, strict=True):
        cells = " ".join(f"{1e3 * seconds:6.2f}" for seconds in row)
        print(f"{name:<8}{cells}  mean {1e3 * details['mean_seconds'][name]:.2f}")


if __name__ == "__main__":
    sys.exit(main())
