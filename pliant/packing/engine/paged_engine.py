"""Pliant's own engine: runs a causal model of transformers one iteration at a time, by the plans of a scheduler.

All tokens of an iteration are one row of a batch, whatever sequences they are of. Transformers' modules compute
everything but attention, which page_attention.py does over each sequence's own pages; the scores are computed for the
sequences alone that get a token. Knows no policy and no thread.

Shape suffixes: T tokens of an iteration, S sequences, M pages of the longest sequence, B sequences that get a token,
V vocabulary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from pliant.errors import InputError, SchedulerError
from pliant.models.execution import PackedLinear, can_pack
from pliant.packing.engine.grammar import Grammars, Matcher
from pliant.packing.engine.page_attention import NAME, Case, PageBatch, attention_of_transformers, page_cache
from pliant.packing.engine.sampling import change_logits, draw, logprobs_of
from pliant.packing.engine.submission import Sampling, TokenLogprobs
from pliant.packing.scheduling.request import Chunk, Memory, StepPlan

STEPS = ((16, 4), (64, 8), (256, 32), (1 << 30, 64))
"""On a CPU a batch of up to so many tokens is padded to a multiple of the second number. oneDNN compiles code for each
number of rows, and keeps something of each.
"""

GREEDY = Sampling()
LOGPROBS_AT_ONCE = 64  # tokens of prompts: a whole vocabulary of float32 numbers for each, twice

AttentionInterface.register(NAME, attention_of_transformers)


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one iteration did. Ids are those of prompts."""

    tokens: tuple[tuple[int, int, bool], ...] = ()  # id, its new token, and whether that was its last
    started: tuple[int, ...] = ()  # ids that were read for the first time
    preempted: tuple[tuple[int, int], ...] = ()  # id, and the number of its tokens to read again
    sequences: int = 0  # in the iteration; 0: there was nothing to run
    logprobs: tuple[tuple[int, TokenLogprobs], ...] = ()  # id, and of its new token
    stuck: tuple[int, ...] = ()  # ids of those whose last token came because their grammar says nothing more
    costly: tuple[int, ...] = ()  # ids of those that go on, though their grammar takes more time than it may
    prompt_logprobs: tuple[
        tuple[int, int, TokenLogprobs], ...
    ] = ()  # id, a place in its prompt, and of the token there


@dataclass(slots=True)
class _Sequence:
    """A text in the engine."""

    id: int
    tokens: list[int]  # the prompt's and its own
    longest: int  # tokens at which it ends
    ends: frozenset[int]
    sampling: Sampling
    prompt: int  # tokens of the prompt
    pages: list[int] = field(default_factory=list)  # in the device's cache, in order
    read: int = 0  # tokens whose keys and values are cached, here or on the host
    generating: bool = False  # whether its last token is one of its own, to be read next
    seen: bool = False  # whether an iteration has read it
    matcher: Matcher | None = None  # of its grammar

    @property
    def stuck(self) -> bool:
        """Whether its grammar says nothing more."""
        return self.matcher is not None and self.matcher.stuck


class SwapSpace:
    """Host memory for the pages of preempted sequences: copies them there and back. Pinned for a GPU.

    `views`: the device's tensors, whose first axis is pages.
    """

    def __init__(self, views: Sequence[Tensor], pages: int) -> None:
        pinned = views[0].device.type == "cuda"
        self._views, self.pages = views, pages
        self._host = [torch.empty((pages, *view.shape[1:]), dtype=view.dtype, pin_memory=pinned) for view in views]
        self._free = list(range(pages - 1, -1, -1))
        self._slots: dict[int, list[int]] = {}

    def __contains__(self, id: int) -> bool:
        return id in self._slots

    @property
    def used(self) -> int:
        return self.pages - len(self._free)

    @torch.inference_mode()
    def swap_out(self, id: int, pages: Sequence[int]) -> None:
        """Copy these pages of the device to the host. The caller makes sure that they fit."""
        free = len(self._free)
        assert id not in self and len(pages) <= free, f"{len(pages)} pages, {free} free on the host"
        self._slots[id] = slots = [self._free.pop() for _ in pages]
        for view, host in zip(self._views, self._host, strict=True):
            for slot, page in zip(slots, pages, strict=True):
                host[slot].copy_(view[page], non_blocking=True)

    @torch.inference_mode()
    def swap_in(self, id: int, pages: Sequence[int]) -> None:
        """Copy a sequence back into these pages of the device, in order, and free it here; `pages` may be more."""
        for view, host in zip(self._views, self._host, strict=True):
            for slot, page in zip(self._slots[id], pages, strict=False):
                view[page].copy_(host[slot], non_blocking=True)
        self.free(id)

    def free(self, id: int) -> None:
        """Free the pages of `id`, if it has any."""
        self._free.extend(self._slots.pop(id, ()))

    def check(self) -> None:
        """Raises AssertionError if a page is used twice or lost."""
        slots = sorted([*self._free, *(slot for host in self._slots.values() for slot in host)])
        assert slots == list(range(self.pages)), "pages on the host"


class PagedEngine:
    """One model with its cache of pages. Not thread-safe.

    On a CPU in float32 the model's linear layers are replaced by packed ones. `sampling=False` always takes the
    likeliest token. Raises `InputError` for a model whose attention is not full in every layer.
    """

    def __init__(self, model: Any, memory: Memory, sampling: bool = True, grammars: Grammars | None = None) -> None:
        self.memory, self.device, self._sampling = memory, torch.device(model.device), sampling
        self._model: Any = model
        self._grammars = grammars
        self._on_cpu = self.device.type == "cpu"
        self._packed = self._on_cpu and model.dtype == torch.float32 and can_pack()
        if self._packed:
            pack(model)
        model.set_attn_implementation(NAME)
        heads, width, sharing = _heads(model)
        case = Case(memory.page_tokens, heads, sharing, width, model.dtype, self.device)
        self._cache = page_cache(_layers(model), memory.pages, case)
        self.swap_space = SwapSpace(self._cache.views(), memory.host_pages)
        self._free = list(range(memory.pages - 1, -1, -1))
        self._known: dict[int, int] = {}  # by the number of what it holds: a page that several sequences may use
        self._users: dict[int, int] = {}  # of those pages
        self._sequences: dict[int, _Sequence] = {}
        self._active: dict[int, _Sequence] = {}  # those with pages, or about to get some
        self._batch: list[tuple[_Sequence, int]] = []  # each with the tokens to read
        self._started: list[int] = []
        self._preempted: list[tuple[int, int]] = []
        self._try()

    @property
    def running(self) -> int:
        return len(self._active)

    @property
    def pages_used(self) -> int:
        """Return the pages that some sequence uses, each counted once."""
        return self.memory.pages - len(self._free) - sum(not users for users in self._users.values())

    @property
    def pairs(self) -> int:
        """Return the pairs of a query and a key that were computed so far, for every head of every layer."""
        return self._cache.pairs

    def pages_of(self, id: int) -> int:
        """Return the pages of one sequence in the device's cache."""
        return len(self._active[id].pages) if id in self._active else 0

    def enter(self, threads: int) -> None:
        """Prepare the thread that runs iterations; call it there, once, first."""
        if self._on_cpu:
            torch.set_num_threads(threads)  # a new thread starts with all cores
        elif self.device.index is not None:
            torch.cuda.set_device(self.device)
        self._cache.prepare(threads)

    def add(
        self,
        id: int,
        ids: Iterable[int],
        limit: int,
        ends: Iterable[int] = (),
        sampling: Sampling = GREEDY,
        prompt: int = 0,
    ) -> None:
        """Add a waiting sequence that generates at most `limit` tokens and stops after one of `ends`.

        `prompt`: how many of its tokens are the prompt's. Raises `InputError` for one with a grammar if the engine has
        been made without `grammars`.
        """
        tokens, matcher = list(ids), None
        if sampling.grammar:
            if self._grammars is None:
                raise InputError("grammar", "given", "left out: this engine has no tokenizer")
            matcher = self._grammars.matcher(sampling.grammar, tokens[prompt:])
        limits = len(tokens) + limit, frozenset(ends)
        self._sequences[id] = _Sequence(id, tokens, *limits, sampling, prompt, matcher=matcher)

    def cancel(self, id: int) -> None:
        """Remove a sequence and free its pages on the device and on the host."""
        sequence = self._sequences.pop(id, None)
        if sequence is not None:
            self.swap_space.free(id)
            self._leave(sequence)
            self._batch = [pair for pair in self._batch if pair[0] is not sequence]

    def carry_out(self, plan: StepPlan) -> None:
        """Do everything in the plan but the iteration itself. Raises `SchedulerError` if there are too few pages."""
        for id, _ in plan.dropped:
            self.cancel(id)
        for id in plan.offloaded:
            sequence = self._sequences[id]
            self.swap_space.swap_out(id, sequence.pages)
            self._leave(sequence)
            self._preempted.append((id, 0))
        for id in plan.discarded:
            sequence = self._sequences[id]
            self._leave(sequence)
            self._preempted.append((id, sequence.read))
            sequence.read, sequence.generating = 0, False
        for number in plan.forgotten:
            self._forget(number)
        for id in plan.admitted:
            self._admit(self._sequences[id])
        out = set(plan.stalled)
        self._batch = [(s, 1) for s in self._active.values() if s.generating and s.id not in out]
        for sequence, _ in self._batch:
            self._store(sequence, sequence.read + 1)
        self._batch += map(self._chunk, plan.prefill_chunks)

    def step(self) -> StepResult:
        """Run one iteration and return what it did. Raises what the model raises."""
        batch, self._batch = self._batch, []
        result = self._run(batch) if batch else StepResult()
        noted = tuple(self._started), tuple(self._preempted)
        self._started, self._preempted = [], []
        return replace(result, started=noted[0], preempted=noted[1], sequences=len(batch))

    def close(self) -> None:
        """Release the model. Counts can still be read."""
        self._model = None
        self._cache.close()

    def check(self) -> None:
        """Raises AssertionError if pages are lost or belong to no sequence."""
        held = Counter(page for sequence in self._active.values() for page in sequence.pages)
        alone = [page for page, users in held.items() if page not in self._users and users == 1]
        assert sorted([*self._free, *alone, *self._users]) == list(range(self.memory.pages)), "pages of the cache"
        assert all(held[page] == users for page, users in self._users.items()), "users of common pages"
        assert sorted(self._known.values()) == sorted(self._users), "numbers of common pages"
        assert self._active.keys() <= self._sequences.keys(), "pages of nobody"
        self.swap_space.check()

    def _admit(self, sequence: _Sequence) -> None:
        self._active[sequence.id] = sequence
        if sequence.id in self.swap_space:
            self._store(sequence, sequence.read)
            self.swap_space.swap_in(sequence.id, sequence.pages)
        elif not sequence.seen:
            sequence.seen = True
            self._started.append(sequence.id)

    def _chunk(self, chunk: Chunk) -> tuple[_Sequence, int]:
        """Allocate a chunk's pages. What it keeps may be taken by the next one: keys are stored before any are read."""
        sequence = self._sequences[chunk.id]
        for number in chunk.taken:
            page = self._known[number]
            self._users[page] += 1
            sequence.pages.append(page)
        sequence.read += len(chunk.taken) * self.memory.page_tokens
        self._store(sequence, sequence.read + chunk.tokens)
        for place, number in chunk.kept:
            page = self._known[number] = sequence.pages[place]
            self._users[page] = 1
        return sequence, chunk.tokens

    def _forget(self, number: int) -> None:
        """Free a page that nobody uses. Raises `SchedulerError` if somebody does."""
        page = self._known.pop(number)
        if self._users.pop(page):
            raise SchedulerError(f"page {page} was to be freed, but is in use")
        self._free.append(page)

    def _leave(self, sequence: _Sequence) -> None:
        """Free the pages of a sequence but those that are known by what they hold, which others may come to use."""
        self._active.pop(sequence.id, None)
        for page in reversed(sequence.pages):
            if page in self._users:
                self._users[page] -= 1
            else:
                self._free.append(page)
        sequence.pages = []

    def _store(self, sequence: _Sequence, tokens: int) -> None:
        """Allocate the pages that `tokens` tokens of a sequence need."""
        missing = self.memory.need(tokens) - len(sequence.pages)
        if missing > len(self._free):
            raise SchedulerError(f"{missing} pages for sequence {sequence.id} were decided on, but are not free")
        sequence.pages += [self._free.pop() for _ in range(missing)]

    def _run(self, batch: list[tuple[_Sequence, int]]) -> StepResult:
        """Run the model over the batch. Returns the new tokens, each with its sequence and whether it is the last."""
        counts_S = np.array([tokens for _, tokens in batch])
        starts_S1 = np.concatenate([[0], np.cumsum(counts_S)])
        new = [at for at, (sequence, tokens) in enumerate(batch) if sequence.read + tokens == len(sequence.tokens)]
        scored = [at for at, (sequence, _) in enumerate(batch) if sequence.sampling.prompt_logprobs >= 0]
        places = [place for at in scored for place in _places(int(starts_S1[at]), *batch[at])]
        rows = np.array([*(starts_S1[1:][new] - 1), *(row for row, _, _ in places)], np.int64)
        sequences = [batch[at][0] for at in new]
        with torch.inference_mode():
            scores_BV = self._forward(batch, counts_S, starts_S1, rows)
            chosen = self._choose(scores_BV[: len(new)], sequences)
            logprobs: tuple[tuple[int, TokenLogprobs], ...] = ()
            if wanted := [at for at, sequence in enumerate(sequences) if sequence.sampling.logprobs >= 0]:
                top = [sequences[at].sampling.logprobs for at in wanted]
                known = logprobs_of(scores_BV[wanted], [chosen[at] for at in wanted], top)
                logprobs = tuple(zip([sequences[at].id for at in wanted], known, strict=True))
            prompt_logprobs = []
            for begin in range(0, len(places), LOGPROBS_AT_ONCE):
                part = places[begin : begin + LOGPROBS_AT_ONCE]
                tokens = [sequence.tokens[place] for _, sequence, place in part]
                top = [sequence.sampling.prompt_logprobs for _, sequence, _ in part]
                known = logprobs_of(scores_BV[len(new) + begin :][: len(part)], tokens, top)
                prompt_logprobs += [(s.id, place, each) for (_, s, place), each in zip(part, known, strict=True)]
        for sequence, count in batch:
            sequence.read += count
        taken = [self._take(sequence, token) for sequence, token in zip(sequences, chosen, strict=True)]
        held = [sequence for sequence in sequences if sequence.matcher is not None]
        stuck = tuple([sequence.id for sequence in held if sequence.stuck])
        costly = tuple([s.id for s in held if s.id in self._sequences and s.matcher is not None and s.matcher.costly])
        return StepResult(
            tuple(taken), logprobs=logprobs, prompt_logprobs=tuple(prompt_logprobs), stuck=stuck, costly=costly
        )

    def _forward(self, batch: list[tuple[_Sequence, int]], counts_S: Any, starts_S1: Any, last_B: Any) -> Tensor:
        """Return the scores of the next tokens [B, V] or, with some rows more behind them, of a padded batch."""
        count = int(starts_S1[-1])
        padded = self._padded(count)
        begins_S = np.array([sequence.read for sequence, _ in batch])
        ids_T, positions_T = np.zeros(padded, np.int64), np.zeros(padded, np.int64)
        ids_T[:count] = [token for s, tokens in batch for token in s.tokens[s.read : s.read + tokens]]
        positions_T[:count] = np.arange(count) + np.repeat(begins_S - starts_S1[:-1], counts_S)
        table_SM = np.zeros((len(batch), max(len(sequence.pages) for sequence, _ in batch)), np.int32)
        for row, (sequence, _) in enumerate(batch):
            table_SM[row, : len(sequence.pages)] = sequence.pages
        size = self.memory.page_tokens
        slots_T = np.full(padded, self.memory.pages * size)
        page_T, place_T = np.divmod(positions_T[:count], size)
        slots_T[:count] = table_SM[np.repeat(np.arange(len(batch)), counts_S), page_T] * size + place_T
        pages = PageBatch(starts_S1, begins_S + counts_S, table_SM, slots_T, self._cache)
        rows_B = np.zeros(self._padded(len(last_B)), np.int64)
        rows_B[: len(last_B)] = last_B
        inputs = {"input_ids": ids_T[None], "position_ids": positions_T[None], "logits_to_keep": rows_B}
        moved = {name: torch.from_numpy(array).to(self.device) for name, array in inputs.items()}
        scores_1BV: Tensor = self._model(**moved, use_cache=False, pages=pages).logits
        return scores_1BV[0]

    def _padded(self, count: int) -> int:
        if not self._packed or not count:
            return count
        multiple = next(multiple for most, multiple in STEPS if count <= most)
        return -(-count // multiple) * multiple

    def _choose(self, scores_BV: Tensor, sequences: list[_Sequence]) -> list[int]:
        if not sequences:
            return []
        changing = [(at, each) for at, each in enumerate(sequences) if each.sampling.changes or each.matcher]
        if changing:
            scores_BV = scores_BV.to(torch.float32, copy=True)  # the model's own are wanted for log-probabilities
        for at, sequence in changing:
            if sequence.sampling.changes:
                change_logits(scores_BV[at], sequence.sampling, sequence.tokens, sequence.prompt, sequence.ends)
            if sequence.matcher is not None:
                sequence.matcher.exclude(scores_BV[at])
        settings = [(s.sampling, len(s.tokens)) for s in sequences] if self._sampling else ()
        return draw(scores_BV, settings)

    def _take(self, sequence: _Sequence, token: int) -> tuple[int, int, bool]:
        sequence.tokens.append(token)
        sequence.generating = True
        if sequence.matcher is not None:
            sequence.matcher.take(token)
        last = token in sequence.ends or len(sequence.tokens) >= sequence.longest or sequence.stuck
        if last:
            self._leave(sequence)
            del self._sequences[sequence.id]
        return sequence.id, token, last

    def _try(self) -> None:
        """Read one token into a page, to find out whether every layer attends through `NAME`. Raises `InputError`."""
        self.add(-1, (0,), 2)
        self.carry_out(StepPlan(admitted=(-1,)))
        sequence = self._sequences[-1]
        self._store(sequence, 1)
        with torch.inference_mode():
            draw(self._forward([(sequence, 1)], np.array([1]), np.array([0, 1]), np.array([0]))[:1])
        self.cancel(-1)
        attended, self._started, self._cache.pairs = self._cache.pairs, [], 0
        heads, _, sharing = _heads(self._model)
        due = _layers(self._model) * heads * sharing  # each head of each layer meets one key
        if attended != due:
            value = f"called by {attended} of {due} heads"
            raise InputError("the model's attention", value, "computed in every layer through transformers' interface")


def _places(start: int, sequence: _Sequence, tokens: int) -> Iterator[tuple[int, _Sequence, int]]:
    """Yield the rows of scores of the tokens of a prompt whose log-probabilities are requested.

    A row comes with its sequence and the token's place in the prompt. The first token has none. What is read again after
    a preemption has had its own.
    """
    if len(sequence.tokens) == sequence.prompt:
        for place in range(sequence.read + 1, min(sequence.read + tokens, sequence.prompt - 1) + 1):
            yield start + place - sequence.read - 1, sequence, place


def pack(model: nn.Module) -> None:
    """Replace the linear layers of a model by packed ones. A weight that is shared with an embedding stays there, too."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Linear:
                setattr(module, name, PackedLinear(child))


def _layers(model: Any) -> int:
    return int(model.config.get_text_config().num_hidden_layers)


def _heads(model: Any) -> tuple[int, int, int]:
    """Return the heads with keys of their own, the width of a head, and how many heads share its keys."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(heads), int(width), int(config.num_attention_heads) // int(heads)
