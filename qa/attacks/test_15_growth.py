"""How much the device process of a cascade grows over texts and batches of all lengths, with its bounds."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import numpy as np
import psutil

from pliant.models.artifact import Classifier
from pliant.registry import codec
from pliant.serving.cascade.messages import SHAPE_CACHES, CascadeBuild, ModelBuild
from pliant.serving.workers.devices import DevicePlan
from pliant.serving.workers.worker import ProcessWorker
from qa.targets import MB, Targets, say

VOCABULARY, LONGEST, BATCHES = 1000, 100, (1, 2, 3, 4, 5, 6, 8, 12, 16)
WARM, LAUNCHES, EACH = 300, 900, 150


def classifier() -> Classifier:
    from pliant.models.classifier import module, weights

    config = {"model_type": "bert", "vocab_size": VOCABULARY, "hidden_size": 384, "num_hidden_layers": 1}
    config |= {"num_attention_heads": 12, "intermediate_size": 1536, "id2label": {"0": "a", "1": "b"}}
    return Classifier("wide", "grow", ("a", "b"), json.dumps(config), "{}", LONGEST, "random", weights(module(config)))


async def megabytes(folder: Path) -> list[float]:
    """Return the process's memory after every `EACH` launches."""
    digest = codec.save(classifier(), folder)
    plan = DevicePlan("cpu", 1, None, (1,))
    worker = ProcessWorker(CascadeBuild((ModelBuild(0, folder, digest, False),), plan))
    await worker.start()
    rng, sizes, began = np.random.default_rng(0), [], time.monotonic()
    try:
        process = psutil.Process(worker.pid)
        for launch in range(1, LAUNCHES + 1):
            lengths = rng.integers(4, LONGEST, int(rng.choice(BATCHES)))
            texts = [(rng.integers(0, VOCABULARY, n).astype(np.int32), np.zeros(n, np.int8)) for n in lengths]
            await worker.run(0, texts)
            if launch % EACH == 0:
                sizes.append(process.memory_info().rss / MB)
    finally:
        await worker.stop()
    say(
        f"after each {EACH} launches: {', '.join(f'{size:.0f}' for size in sizes)} MB ({time.monotonic() - began:.0f} s)"
    )
    return sizes


def test_a_device_process_stops_growing(tmp_path, monkeypatch):
    for name in SHAPE_CACHES:
        monkeypatch.delenv(name, raising=False)  # so that it bounds them itself
    sizes = asyncio.run(megabytes(tmp_path / "model"))
    targets = Targets("15 growth of a cascade's device process")
    grown = sizes[-1] - sizes[WARM // EACH - 1]
    targets.at_most(f"growth after the first {WARM} of {LAUNCHES} launches", grown, 40, " MB")
    targets.check()
