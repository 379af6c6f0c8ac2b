"""Measures two bundles of a backbone and its tasks beside each other: seconds of batches in turns, answers to test pictures.

Knows no Prefect and no registry.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from pliant.device import threads
from pliant.errors import DeviceError
from pliant.flows.beside import ROWS, Answers, Beside, Pace
from pliant.flows.tokens.config import TokensFlowConfig
from pliant.flows.tokens.stages import Bundle
from pliant.profiling.interleaved import ROUNDS, Pair, Rounds, interleave
from pliant.profiling.tokens.accuracy import right
from pliant.progress import Progress, share
from pliant.tokens.runtime import Execution, Payload, TokensRuntime
from pliant.training.data import ImageData

BATCHES = (1, 8)


def beside(
    config: TokensFlowConfig,
    champion: Bundle,
    challenger: Bundle,
    tested: Sequence[ImageData],
    progress: Progress,
    rounds: Rounds = ROUNDS,
) -> Beside:
    """Return the pace at gamma 0, or the setting nearest to it, and the answers to the pictures that both may be tested on.

    Raises what a runtime raises that cannot be opened or run.
    """
    sides = champion, challenger
    old, new = (side.profile for side in sides)
    if old.device != new.device:
        raise DeviceError(f"its profile is of {old.device}, this device is {new.device}")
    setting = min(
        set(old.latency.settings) & set(new.latency.settings) - old.points.keys() - new.points.keys(), key=abs
    )
    names = [
        name for name in (task.name for task in champion.tasks) if name in {task.name for task in challenger.tasks}
    ]
    with threads(config.threads):
        runtimes = [
            TokensRuntime(
                *(side.backbone, side.profile.backbone, side.tasks, config.device),
                *(Execution(precision=side.profile.precision), {}, {setting}),
            )
            for side in sides
        ]
        rng, pairs = np.random.default_rng(0), list[Pair]()
        for batch in BATCHES:
            payloads = [
                [
                    Payload(names[n % len(names)], rng.integers(0, 256, (*[side.backbone.image_size] * 2, 3), np.uint8))
                    for n in range(batch)
                ]
                for side in sides
            ]
            before, now = (partial(each.run, setting, of) for each, of in zip(runtimes, payloads, strict=True))
            pairs.append((before, now))
        points = tuple((old.latency.at(setting, batch), new.latency.at(setting, batch)) for batch in BATCHES)
        pace = Pace(interleave(pairs, config.device, rounds, share(progress, 0, 50)), points)
        answers = {}
        for data in tested:
            classes = [next(task.classes for task in side.tasks if task.name == data.name) for side in sides]
            if classes[0] == classes[1] == data.classes:
                rows = data.split.test[: min(ROWS, config.measured or ROWS)]
                both = [
                    right(runtime, data.name, data, rows, setting, side.backbone.image_size)
                    for runtime, side in zip(runtimes, sides, strict=True)
                ]
                answers[data.name] = Answers(*both, data.labels[rows], data.classes)
    return Beside(pace, answers)
