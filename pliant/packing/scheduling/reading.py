"""Shares out the tokens of an iteration among the running sequences, and keeps what each has read of its text.

Shape suffix: N running sequences.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError
from pliant.packing.scheduling.common_pages import CommonPages, missing
from pliant.packing.scheduling.request import Chunk, Correction, Memory, Prompt
from pliant.packing.scheduling.running import Running
from pliant.packing.scheduling.waiting_queue import Waiting


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
        reading = (running.by_priority(reads) if by_priority else running.by_turn(reads)).tolist()
        cached[decoding] += 1
        generated[decoding] += 1
        whole = self._memory.step_tokens if most is None else most
        queries, chunks, stalled = max(whole - int(decoding.sum()), 0), [], sorted(paused)
        for at in reading:
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
