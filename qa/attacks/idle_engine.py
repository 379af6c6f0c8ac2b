"""A packing engine that computes nothing: each text has all its tokens as soon as it is submitted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from pliant.packing.engine.submission import Progress, Status, Submission
from pliant.serving.packing.engine.engine_process import NO_STATUS, Deliver, EngineBuild
from pliant.serving.workers.devices import BuildPlan

TOKENS = 8  # of each text, at most
TOKEN = 5  # whichever: nobody reads the text


@dataclass(frozen=True, slots=True)
class IdleBuild(BuildPlan):
    """Makes the idle engine in place of the one that `real` would make."""

    BUILDER: ClassVar[str] = f"{__name__}:build"

    real: EngineBuild


def build(_spec: IdleBuild, deliver: Deliver) -> IdleEngine:
    return IdleEngine(deliver)


class IdleEngine:
    """Ends every text at its limit, or after `TOKENS` tokens."""

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver

    def submit(self, submission: Submission) -> None:
        count = min(TOKENS, submission.max_tokens)
        progress = Progress(submission.prompt.id, (TOKEN,) * count, "length", 0.0, 0, 0, count)
        self._deliver([progress])

    def cancel(self, id: int) -> None: ...

    def status(self) -> Status:
        return replace(NO_STATUS, alive=True)

    def stop(self) -> None: ...

    def check(self) -> None: ...
