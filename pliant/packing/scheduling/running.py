"""The sequences in a device's cache as columns of a table, so that the scheduler counts and predicts over all at once.

`Reading` shares out the tokens of an iteration among them, and keeps what each has read of its text.

Shape suffixes: N running sequences, G points of a forecast's grid.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError
from pliant.packing.scheduling.common_pages import CommonPages, missing
from pliant.packing.scheduling.forecast import POINTS
from pliant.packing.scheduling.request import Chunk, Correction, Memory, Prompt
from pliant.packing.scheduling.waiting_queue import Waiting

Ints = NDArray[np.int64]
COLUMNS = ("id", "generated", "cached", "unread", "limit", "reserved", "turn", "prompt", "group", "common", "taken")
"""`common`: pages of the sequence that others may use, too. `taken`: tokens that others had read for it."""
FIRST = 16  # rows allocated at first


class Running:
    """A table with a row for each running sequence. The last row replaces one that leaves: the order is arbitrary."""

    def __init__(self) -> None:
        self.count = 0
        self._whole = np.zeros((len(COLUMNS), FIRST), np.int64)
        self._key = np.zeros(FIRST)
        self._rows = np.zeros((FIRST, POINTS))
        self._at: dict[int, int] = {}

    def __contains__(self, id: int) -> bool:
        return id in self._at

    def ids(self) -> list[int]:
        return list(self._at)

    def column(self, name: str) -> Ints:
        """Return one of COLUMNS as a view [N] that may be written to."""
        return self._whole[COLUMNS.index(name), : self.count]

    @property
    def key(self) -> NDArray[np.float64]:
        """[N] the key of each sequence's priority within its `group`, as it was when it waited."""
        return self._key[: self.count]

    @property
    def rows(self) -> NDArray[np.float64]:
        """[N, G] the distribution of each sequence's output (see `forecast.Grid`)."""
        return self._rows[: self.count]

    def at(self, id: int) -> int:
        """Return the row of a sequence."""
        return self._at[id]

    def needed(self, more: int, page_tokens: int) -> Ints:
        """Return [N], the pages of each sequence with all its prompt, or with `more` tokens if it generates already.

        Those that others may use, too, are not among them.
        """
        unread = self.column("unread")
        needed: Ints = -(-(self.column("cached") + unread + more * (unread == 0)) // page_tokens) - self.column(
            "common"
        )
        return needed

    def pages_held(self, page_tokens: int) -> int:
        """Return the pages of all sequences together, without those that others may use, too."""
        return int((-(-self.column("cached") // page_tokens) - self.column("common")).sum())

    def but(self, ids: Collection[int]) -> NDArray[np.bool_]:
        """Return [N] whether a sequence is none of these."""
        others = np.ones(self.count, np.bool_)
        others[[self._at[id] for id in ids]] = False
        return others

    def add(self, columns: tuple[int, ...], key: float, row: NDArray[np.float64]) -> None:
        """Add a row: whole numbers in the order of COLUMNS, the key of its priority, and its distribution [G].

        Numbers that are left out are 0.
        """
        if self.count == self._key.shape[0]:
            self._whole = np.concatenate([self._whole, np.zeros_like(self._whole)], axis=1)
            self._key = np.concatenate([self._key, np.zeros_like(self._key)])
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._whole[:, self.count] = columns + (0,) * (len(COLUMNS) - len(columns))
        self._key[self.count], self._rows[self.count] = key, row
        self._at[columns[0]] = self.count
        self.count += 1

    def remove(self, id: int) -> dict[str, int]:
        """Remove a sequence and return its whole numbers by name."""
        index, last = self._at.pop(id), self.count - 1
        values = dict(zip(COLUMNS, self._whole[:, index].tolist(), strict=True))
        if index != last:
            self._whole[:, index], self._key[index] = self._whole[:, last], self._key[last]
            self._rows[index] = self._rows[last]
            self._at[int(self._whole[0, index])] = index
        self.count = last
        return values


class Reading:
    """What the sequences of a table have read. `share`: whether prompts that begin alike share pages."""

    def __init__(self, memory: Memory, running: Running, common: CommonPages, share: bool) -> None:
        self._memory, self._running, self._common, self._share = memory, running, common, share
        self.taken = 0  # tokens so far that sequences did not read, since others had

    def held(self, id: int) -> Correction:
        """Return what a running sequence holds."""
        running, at = self._running, self._running.at(id)
        return Correction(id, *(int(running.column(name)[at]) for name in ("cached", "unread", "generated")))

    def generating(self, paused: Collection[int]) -> NDArray[np.bool_]:
        """Return [N] which sequences generate in the next iteration: those that have read all and are below their limit."""
        running = self._running
        below = (running.column("unread") == 0) & (running.column("generated") < running.column("limit"))
        generating: NDArray[np.bool_] = below & running.but(paused)
        return generating

    def share_out(
        self,
        paused: Collection[int],
        prompts: Mapping[int, Waiting],
        most: int | None = None,
        by_priority: bool = False,
    ) -> tuple[tuple[Chunk, ...], tuple[int, ...]]:
        """Read one token for each generating sequence, then prompts in turn, `most` tokens together (None: all that fit).

        `by_priority`: prompts by their priority instead, whenever they were admitted. `paused`: those that have no place.

        Returns the chunks of prompts, and the ids that nothing was left for.
        """
        running = self._running
        unread, cached, generated = (running.column(name) for name in ("unread", "cached", "generated"))
        decoding = self.generating(paused)
        reads = (unread > 0) & running.but(paused)
        rows = np.flatnonzero(reads)
        order: list[NDArray[Any]] = [running.column("turn")[rows]]  # the first admitted first
        if by_priority:
            order += [running.key[rows], running.column("group")[rows]]
        cached[decoding] += 1
        generated[decoding] += 1
        whole = self._memory.step_tokens if most is None else most
        queries, chunks, stalled = max(whole - int(decoding.sum()), 0), [], sorted(paused)
        for at in rows[np.lexsort(order)].tolist():
            id = int(running.column("id")[at])
            if queries == 0:
                stalled.append(id)
                continue
            chunks.append(self._chunk(at, id, prompts[id].prompt, queries))
            queries -= chunks[-1].tokens
            generated[at] += int(unread[at] == 0)
        return tuple(chunks), tuple(stalled)

    def correct(self, corrections: Sequence[Correction], prompts: Mapping[int, Waiting]) -> None:
        """Take over what the engine reports of running sequences. Raises `InputError`; nothing has changed then."""
        for correction in corrections:
            _check(correction, prompts)
        running, size = self._running, self._memory.page_tokens
        for correction in corrections:
            id, at = correction.id, running.at(correction.id)
            for name in ("cached", "unread", "generated"):
                running.column(name)[at] = getattr(correction, name)
            if self._shares(prompts[id].prompt):
                common = prompts[id].prompt.beginnings[: correction.cached // size]
                self._common.replace(id, common)
                running.column("common")[at] = len(common)

    def _shares(self, prompt: Prompt) -> bool:
        return self._share and bool(prompt.beginnings)

    def _chunk(self, at: int, id: int, prompt: Prompt, queries: int) -> Chunk:
        """Let the sequence in row `at` read up to `queries` tokens, behind what others have read for it."""
        running, size = self._running, self._memory.page_tokens
        cached, unread = (int(running.column(name)[at]) for name in ("cached", "unread"))
        shares = self._shares(prompt)
        coming = missing(prompt, cached, size) if shares else ()
        taken = coming[: self._common.known(coming)]
        self._common.take(id, taken)
        skipped = size * len(taken)
        cached, unread, self.taken = cached + skipped, unread - skipped, self.taken + skipped
        tokens = min(unread, queries)
        filled = range(cached // size, min((cached + tokens) // size, len(prompt.beginnings))) if shares else ()
        kept = tuple([(at, prompt.beginnings[at]) for at in filled if self._common.keep(id, prompt.beginnings[at])])
        running.column("cached")[at], running.column("unread")[at] = cached + tokens, unread - tokens
        running.column("common")[at] += len(taken) + len(kept)
        running.column("taken")[at] += skipped
        return Chunk(id, tokens, taken, kept)


def _check(correction: Correction, prompts: Mapping[int, Waiting]) -> None:
    """Raises `InputError` for a sequence that does not run, or more tokens than it can have."""
    if correction.id not in prompts:
        raise InputError("id", correction.id, "one that runs")
    most = prompts[correction.id].prompt.tokens + correction.generated
    counts = (correction.cached, correction.unread, correction.generated)
    if min(counts) < 0 or correction.cached + correction.unread > most:
        raise InputError("corrected", correction, f"no counts below 0, and at most {most} tokens")
