"""Chances that texts end before their deadlines, and whom to start by them.

A text that starts now has as many iterations as fit before its deadline, at the pace of all that would run with it. Its
chance to be in time is the share of outputs, by its forecast, that need no more. Of those that are as good as sure the
earliest deadline goes first. Behind them go the others by their chance for their expected iterations, whatever their
place in the queue, so that capacity is not spent on what comes too late. A text joins only if what it brings is no less
than what it takes from the chances of those that run, so that no more run together than deadlines bear.

The pace is what recent iterations took, and a factor that is learnt from what became of the texts that were started: as
many as expected must be in time. Nothing is refused by a forecast alone. On an idle device the best one always starts, so
no estimate stays wrong for want of being tested.

Shape suffixes: N running sequences, W waiting ones, G points of a forecast's grid.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from pliant.packing.scheduling.forecast import Floats, Grid
from pliant.packing.scheduling.request import FOREVER, Prompt
from pliant.packing.scheduling.running import Running
from pliant.packing.scheduling.targets import Clock
from pliant.packing.scheduling.waiting_queue import Waiting

LEARN = 0.05  # by how much one surprise changes the logarithm of `stretch`
STRETCHES = (0.5, 4.0)
LOOKED_AT = 512  # waiting texts that are compared, at most
SURE = 0.95  # chance from which on texts count alike, and the earliest deadline goes first
WORTH = -0.02  # least change of the expected number of texts in time by one more; below 0, so that equals start


class InTime:
    """The deadlines of texts that wait or run on one device, by id, and what became of those that were started.

    Without a `clock` of iterations nothing is known of any.
    """

    def __init__(self, clock: Clock | None, grid: Grid) -> None:
        self.stretch = 1.0  # times what iterations take by the clock
        self.clock, self.grid = clock, grid
        self.widths_G = np.diff(grid.tokens, prepend=0.0)
        self._deadlines: dict[int, float] = {}
        self._chances: dict[int, float] = {}  # of those that run, when they started

    def chances(self, running: Running, now: float, prompt_share: float) -> Chances | None:
        """Return the chances of this moment; None where no text has a deadline."""
        if self.clock is None or not self._deadlines:
            return None
        return Chances(self, self.clock, running, now, prompt_share)

    def deadline(self, id: int) -> float:
        """Return a text's deadline."""
        return self._deadlines.get(id, FOREVER)

    def arrive(self, prompt: Prompt) -> None:
        """Take a text into account."""
        if prompt.deadline < FOREVER:
            self._deadlines[prompt.id] = prompt.deadline

    def start(self, started: Sequence[Waiting], chance_W: Floats) -> None:
        """Note what is expected of texts that start."""
        for waiting, chance in zip(started, chance_W.tolist(), strict=True):
            if waiting.prompt.id in self._deadlines:
                self._chances.setdefault(waiting.prompt.id, chance)

    def leave(self, id: int, now: float | None = None) -> None:
        """Forget a text. `now`: when it ended or its deadline had passed; None: neither did."""
        deadline, chance = self._deadlines.pop(id, FOREVER), self._chances.pop(id, None)
        if chance is not None and now is not None:
            change = np.exp(LEARN * (chance - (now <= deadline)))
            self.stretch = float(np.clip(self.stretch * change, *STRETCHES))


class Chances:
    """The chances to be in time at one moment: of the running texts, and of waiting ones that join them."""

    def __init__(self, in_time: InTime, clock: Clock, running: Running, now: float, prompt_share: float) -> None:
        self._in_time, self._clock = in_time, clock
        self._running, self._now, self._prompt_share = running, now, prompt_share
        deadlines = [in_time.deadline(id) for id in running.column("id").tolist()]
        self._left_N = np.array(deadlines, float) - now
        self._cached = float((running.column("cached") + running.column("unread")).sum())

    def best_first(self, queue: Iterable[Waiting]) -> list[Waiting]:
        """Return the waiting texts, those with deadlines alone in the order of chance and worth for their iterations.

        They take the places of their group that they have among them; all others keep theirs.
        """
        order = list(queue)
        by_group: dict[int, list[int]] = {}
        for place, waiting in enumerate(order[:LOOKED_AT]):
            if waiting.prompt.deadline < FOREVER == waiting.prompt.ttft and not waiting.prompt.offline:
                by_group.setdefault(waiting.priority[0], []).append(place)
        for places in by_group.values():
            if len(places) > 1:
                group = [order[place] for place in places]
                for place, best in zip(places, self._worst_last(group), strict=True):
                    order[place] = group[best]
        return order

    def gain(self, taken: Sequence[Waiting], waiting: Waiting) -> bool:
        """Whether one more text is worth what it takes from the chances of those that run."""
        if not self._running.count and not taken:
            return True
        state_NG = self._together([*taken, waiting])
        chance_NP = self._chances(*state_NG, np.array([self._pace(taken), self._pace([*taken, waiting])]))
        return float(chance_NP[:, 1].sum() - chance_NP[:-1, 0].sum()) >= WORTH

    def of_started(self, taken: Sequence[Waiting]) -> Floats:
        """Return [W] the chances of texts that start together."""
        return self._chances(*self._waiting(taken), np.array([self._pace(taken)]))[:, 0] if taken else np.zeros(0)

    def _worst_last(self, group: Sequence[Waiting]) -> list[int]:
        """Return the places of these texts, the one that is worth most for its iterations first."""
        rows_WG, generated_W, left_W = self._waiting(group)
        pace = self._pace(())
        chance_W = self._chances(rows_WG, generated_W, left_W, np.array([pace]))[:, 0]
        tokens_W = (1.0 - rows_WG) @ self._in_time.widths_G - generated_W
        steps_W = np.maximum(tokens_W, 1.0)
        utility_W = np.array([each.prompt.utility for each in group])
        worth_W = np.minimum(chance_W, SURE) * utility_W / steps_W
        order: list[int] = np.lexsort((left_W, -worth_W)).tolist()
        return order

    def _pace(self, together: Sequence[Waiting]) -> float:
        """Return the seconds of an iteration if these run, too."""
        sequences = max(self._running.count + len(together), 1)
        cached = self._cached + sum(each.first_tokens for each in together)
        return self._in_time.stretch * self._clock.seconds(sequences * (1 + self._prompt_share), sequences, cached)

    def _waiting(self, waiting: Sequence[Waiting]) -> tuple[Floats, Floats, Floats]:
        """Return the distributions [W, G], the tokens so far [W] and the seconds left [W] of waiting texts."""
        rows_WG = np.array([each.row for each in waiting])
        generated_W = np.array([float(each.generated) for each in waiting])
        return rows_WG, generated_W, np.array([each.prompt.deadline for each in waiting]) - self._now

    def _together(self, waiting: Sequence[Waiting]) -> tuple[Floats, Floats, Floats]:
        """Return the same of the running texts and of these behind them."""
        rows_WG, generated_W, left_W = self._waiting(waiting)
        generated_N = np.concatenate([self._running.column("generated"), generated_W])
        return np.concatenate([self._running.rows, rows_WG]), generated_N, np.concatenate([self._left_N, left_W])

    def _chances(self, rows_NG: Floats, generated_N: Floats, left_N: Floats, paces_P: Floats) -> Floats:
        """Return [N, P] the chances to end within the seconds left, at each pace."""
        grid = self._in_time.grid
        steps_NP = np.floor(np.minimum(np.maximum(left_N[:, None] / paces_P, 0.0), float(grid.longest)))
        ends_NP = np.concatenate([np.zeros((len(left_N), 1)), steps_NP], axis=1) + generated_N[:, None]
        over_NP = 1.0 - grid.below(rows_NG, ends_NP)
        alive_N1 = over_NP[:, :1]
        chance_NP = np.where(alive_N1 > 1e-6, 1.0 - over_NP[:, 1:] / np.maximum(alive_N1, 1e-6), steps_NP >= 1.0)
        chance_NP[np.isinf(left_N)] = 1.0
        return chance_NP
