"""A cascade served first come, first served: what the scheduler is to be better than. One device.

The request that waits longest runs at its level, with those behind it that wait for the same one. Nothing is dropped or cut
short before its deadline has passed.
"""

from __future__ import annotations

from pliant.cascade.knowledge import Knowledge
from pliant.protocol import Action, Answer, Arrived, Drop, Event, Finished, Launch, Request

BATCH = 16


class FifoCascade:
    def __init__(self, knowledge: Knowledge) -> None:
        self._knowledge = knowledge
        self._queue: list[tuple[Request, int, int | None]] = []  # step, and the launch that answered it so far
        self._running: list[tuple[Request, int, int | None]] = []
        self._launches = 0

    def handle(self, event: Event, now: float) -> list[Action]:
        actions: list[Action] = []
        match event:
            case Arrived(request):
                self._queue.append((request, 0, None))
            case Finished(launch, _, results):
                for (request, step, _), result in zip(self._running, results, strict=True):
                    if result.gain is None:
                        actions.append(Answer(request.id, launch))
                    else:
                        self._queue.append((request, step + 1, launch))
                self._running = []
        actions += [self._give_up(*one) for one in self._queue if one[0].deadline <= now]
        self._queue = [one for one in self._queue if one[0].deadline > now]
        return actions if self._running or not self._queue else [*actions, self._launch()]

    def _give_up(self, request: Request, step: int, former: int | None) -> Action:
        return Drop(request.id, "late") if former is None else Answer(request.id, former, "late")

    def _launch(self) -> Launch:
        model = self._model(*self._queue[0])
        self._running = [one for one in self._queue if self._model(*one) == model][:BATCH]
        self._queue = [one for one in self._queue if one not in self._running]
        self._launches += 1
        return Launch(self._launches - 1, 0, tuple(one[0].id for one in self._running), model)

    def _model(self, request: Request, step: int, former: int | None) -> int:
        return self._knowledge.tasks[request.task][request.setting].models[step]

    def wake_at(self) -> float | None:
        return min((one[0].deadline for one in self._queue), default=None)

    def check(self) -> None: ...
