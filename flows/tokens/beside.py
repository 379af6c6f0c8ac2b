"""Measures two bundles of a backbone and its tasks beside each other: batches in turns, answers to test pictures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from pliant.device import threads
from pliant.flows.beside import ROWS, Answers, Beside, same_device, slices
from pliant.flows.tokens.config import TokensFlowConfig
from pliant.flows.tokens.stages import Bundle
from pliant.profiling.interleaved import interleave
from pliant.profiling.tokens.accuracy import right
from pliant.progress import Progress, share
from pliant.tokens.runtime import Execution, Payload, TokensRuntime
from pliant.training.data import ImageData

BATCHES = (1, 8)


def beside(
    config: TokensFlowConfig, sides: tuple[Bundle, Bundle], tested: Sequence[ImageData], progress: Progress
) -> Beside:
    """Return the ratio at gamma 0, or the setting nearest to it, and the answers to the pictures that both may be tested on.

    `sides`: champion and challenger. Raises what a runtime raises that cannot be opened or run.
    """
    old, new = (side.profile for side in sides)
    same_device(old.device, new.device)
    setting = min(
        set(old.latency.settings) & set(new.latency.settings) - old.points.keys() - new.points.keys(), key=abs
    )
    (name, *_) = (task.name for task in sides[0].tasks if task.name in {other.name for other in sides[1].tasks})
    calls, rights, answers = [], [], dict[str, Answers]()
    with threads(config.threads):
        for side in sides:
            served = side.backbone, side.profile.backbone, side.tasks, config.device
            runtime = TokensRuntime(*served, Execution(precision=side.profile.precision), {}, {setting})
            size = side.backbone.image_size
            picture = Payload(name, np.random.default_rng(0).integers(0, 256, (size, size, 3), np.uint8))
            calls.append([partial(runtime.run, setting, [picture] * batch) for batch in BATCHES])
            rights.append(partial(right, runtime, gamma=setting, size=size))
        ratio = interleave(calls, config.device, share(progress, 0, 50))
        for data in tested:
            # A picture that stands for several of the data is one all the same.
            rows = np.array([*dict.fromkeys(data.split.test.tolist())][: min(ROWS, config.measured or ROWS)])
            if all(task.classes == data.classes for side in sides for task in side.tasks if task.name == data.name):
                old_R, new_R = (answer(data.name, data, rows) for answer in rights)
                of = slices(data.labels[rows], data.classes, [data.slices.get(row, ()) for row in rows.tolist()])
                answers[data.name] = Answers(old_R, new_R, of)
    points = tuple((old.latency.at(setting, batch), new.latency.at(setting, batch)) for batch in BATCHES)
    return Beside(ratio, points, answers)
