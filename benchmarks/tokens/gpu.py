"""ViT-B/16 at 224 on the GPU of this machine, end to end: `python -m benchmarks.tokens.gpu`, also from a bare checkout.

End to end is the runtime's whole `run`: packing images of the host, transfer, every layer, heads, probabilities back. Speed
does not depend on the weights' values, so random ones serve where timm's hub is out of reach. Needs torch and timm alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.results import Target, exit_status, write
from benchmarks.timing import seconds_of
from pliant.device import device_class
from pliant.errors import OfflineError
from pliant.precision import has_bfloat16
from pliant.tokens.artifact import GAMMAS, Backbone, Head, Task
from pliant.tokens.model import create_vit
from pliant.tokens.runtime import Execution, Payload, TokensRuntime, load_model, normaliser
from training.tokens.foundation import from_timm

ARCHITECTURE, TASKS, CLASSES = "vit_base_patch16_224", 3, 100
DIGEST = "gpu-benchmark"

Plain = Callable[[Sequence[Payload]], object]


@dataclass(frozen=True, slots=True)
class GpuConfig:
    architecture: str = ARCHITECTURE
    batches: tuple[int, ...] = (1, 8, 32, 64)  # targets are read at the last
    rounds: int = 30


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds by [round][batch][setting]: the gammas, then "eager" (gamma 0 without graphs) and "timm" (plain)."""

    device: str
    weights: str
    batches: tuple[int, ...]
    settings: tuple[str, ...]
    seconds_RBS: NDArray[np.float64]

    def ratio(self, setting: str, over: str = "0", batch: int | None = None) -> float:
        """Return throughput over throughput, median over interleaved rounds; at the largest batch by default."""
        seconds_RS = self.seconds_RBS[:, self.batches.index(batch or self.batches[-1])]
        own, other = (seconds_RS[:, self.settings.index(name)] for name in (setting, over))
        return float(np.median(other / own))

    def targets(self) -> list[Target]:
        where = f"ViT-B/16 on {self.device}, batch {self.batches[-1]}, throughput over gamma 0"
        return [
            Target(f"{where}, gamma -15", self.ratio("-15"), ">=", 1.7, "x"),
            Target(f"{where}, gamma 8", self.ratio("8"), ">=", 0.9, "x"),
        ]

    def plain(self) -> dict[str, Any]:
        """Return images/s by [batch][setting], and what they were measured on."""
        images_BS = np.array(self.batches)[:, None] / np.median(self.seconds_RBS, axis=0)
        table = {
            b: dict(zip(self.settings, row, strict=True))
            for b, row in zip(self.batches, images_BS.tolist(), strict=True)
        }
        return {"device": self.device, "weights": self.weights, "images_per_second": table}


def targets(config: GpuConfig = GpuConfig()) -> list[Target]:
    """Measure and judge; return none on a machine without a GPU."""
    return measure(config).targets() if torch.cuda.is_available() else []


def measure(config: GpuConfig, device: str = "cuda") -> Measured:
    """Run every batch at every setting once a round. Raises `InputError` where there is no such device."""
    name = device_class(device)
    backbone = backbone_of(config.architecture)
    tasks = [random_task(f"task{number}", backbone, number) for number in range(TASKS)]
    executions = Execution(), Execution(buckets=())
    graphs, eager = (TokensRuntime(backbone, DIGEST, tasks, device, execution) for execution in executions)
    graphs.warm(GAMMAS)
    plain = _plain(backbone, device)
    seconds = []
    for number in range(config.rounds + 3):  # three to warm up
        row = [_round(graphs, eager, plain, payloads_of(backbone.image_size, batch)) for batch in config.batches]
        if number >= 3:
            seconds.append(row)
    settings = (*map(str, GAMMAS), "eager", "timm")
    return Measured(name, backbone.source, config.batches, settings, np.array(seconds))


def _round(graphs: TokensRuntime, eager: TokensRuntime, plain: Plain, payloads: Sequence[Payload]) -> list[float]:
    """Time every call, which brings its result back to the host, and so has waited for the device."""
    calls = [*(partial(graphs.run, gamma, payloads) for gamma in GAMMAS), partial(eager.run, 0, payloads)]
    return [*map(seconds_of, calls), seconds_of(partial(plain, payloads))]


def _plain(backbone: Backbone, device: str) -> Plain:
    """Return what one writes without Pliant: timm's model in the same precision, images stacked and sent."""
    lowered = torch.device(device).type == "cuda" and has_bfloat16(device)
    dtype = torch.bfloat16 if lowered else torch.float32
    model, normalise = load_model(backbone).to(device, dtype), normaliser(backbone, device)

    def run(payloads: Sequence[Payload]) -> object:
        with torch.inference_mode():
            pixel_BHWC = torch.from_numpy(np.stack([p.image for p in payloads])).to(device)
            out_BD: torch.Tensor = model.vit(normalise(pixel_BHWC).to(dtype))
            return out_BD.float().cpu()

    return run


def backbone_of(architecture: str) -> Backbone:
    """Return timm's backbone with its weights, or with random ones where its hub is out of reach."""
    try:
        return from_timm(architecture)
    except OfflineError as error:
        print(f"{error}. Random weights serve here: they take as long.", file=sys.stderr)
        vit = create_vit(architecture, {})
        size = int(vit.pretrained_cfg["input_size"][-1])
        weights = {name: w.numpy() for name, w in vit.state_dict().items()}
        return Backbone(architecture, {}, size, (0.5,) * 3, (0.5,) * 3, f"{architecture}, random weights", weights)


def random_task(name: str, backbone: Backbone, seed: int) -> Task:
    """Return a task of random prompts and heads on the backbone `DIGEST`."""
    rng, model = np.random.default_rng(seed), load_model(backbone)
    lengths = [gamma for gamma in GAMMAS if gamma >= 0]

    def drawn(*shape: int) -> NDArray[np.float32]:
        return rng.normal(0, 0.1, shape).astype(np.float32)

    heads = {gamma: Head(drawn(CLASSES, model.width), drawn(CLASSES)) for gamma in lengths}
    prompts = {gamma: drawn(model.depth, gamma, model.width) for gamma in lengths if gamma}
    return Task(name, tuple(map(str, range(CLASSES))), DIGEST, heads, prompts, {}, {}, "random")


def payloads_of(size: int, batch: int) -> list[Payload]:
    """Return random pictures, the tasks mixed."""
    pixel_BHWC = np.random.default_rng(batch).integers(0, 256, (batch, size, size, 3), dtype=np.uint8)
    return [Payload(f"task{i % TASKS}", image) for i, image in enumerate(pixel_BHWC)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure ViT-B/16 at 224 on this machine's GPU.")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"), help="folder for the JSON")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("Nothing was measured: torch finds no GPU on this machine.", file=sys.stderr)
        return 2
    measured = measure(GpuConfig())
    for target in measured.targets():
        print(f"{target.name}: {target.measured:.2f} {target.sense} {target.limit} {target.verdict}")
    for batch, speeds in measured.plain()["images_per_second"].items():
        print(f"batch {batch}: " + ", ".join(f"{setting} {speed:,.0f}" for setting, speed in speeds.items()))
    details = {**measured.plain(), "config": asdict(GpuConfig())}
    print(f"Written to {write(options.out, 'tokens-gpu', measured.targets(), details)}")
    return exit_status(measured.targets())


if __name__ == "__main__":
    sys.exit(main())
