"""Prompts, memories and a plain device for tests of packing: books kept a second time, from the decisions alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import strategies as st

from pliant.packing.policy import POLICIES, Rules
from pliant.packing.request import FOREVER, Decision, Memory, Prompt, Round
from pliant.packing.scheduler import Packer
from pliant.packing.steps import LinearSteps

STEPS = LinearSteps(0.1, 0.01, 0.01, 0.001, 0.0, 0.001)
SECONDS = 0.25  # of one iteration of Device

policies = st.sampled_from(tuple(POLICIES))
seeds = st.integers(0, 2**32 - 1)


def prompt(id: int, tokens: int = 4, limit: int = 8, forecast: float | Sequence[float] = 4.0, **rest) -> Prompt:
    """Arrived at 0 unless told otherwise; one number as the forecast: all quantiles alike."""
    quantiles = tuple(forecast) if isinstance(forecast, Sequence) else (float(forecast),) * 8
    return Prompt(id, rest.pop("arrival", 0.0), tokens, limit, quantiles, **rest)


@dataclass(frozen=True)
class Scene:
    """A load that is tight for its memory, with what each prompt really makes."""

    context: int
    memory: Memory
    prompts: tuple[Prompt, ...]
    lengths: Mapping[int, int]

    def rules(self, policy: str, **rest) -> Rules:
        return Rules(policy, self.context, **rest)


def scene(seed: int, most: int = 30, deadlines: float = 0.2, offline: float = 0.2, least: int = 1) -> Scene:
    """Anything goes: pages of one token, an iteration of one query, forecasts that are wrong, prompts that just fit."""
    rng = np.random.default_rng(seed)
    context, page = int(rng.integers(8, 80)), int(rng.integers(1, 9))
    pages = -(-context // page) + int(rng.integers(0, 60))
    memory = Memory(pages, page, *(int(rng.integers(low, 40)) for low in (0, 1, 1)))
    pace = float(rng.choice([0.0, 0.3, 3.0]))
    prompts, lengths, now = [], {}, 0.0
    for id in rng.permutation(int(rng.integers(least, most))).tolist():
        now += float(rng.exponential(pace)) if pace else 0.0
        one = _random_prompt(rng, id, now, context, deadlines, offline)
        prompts.append(one)
        lengths[id] = one.exact
    return Scene(context, memory, tuple(prompts), lengths)


def _random_prompt(rng, id: int, now: float, context: int, deadlines: float, offline: float) -> Prompt:
    tokens = int(rng.integers(1, context))
    limit = int(rng.integers(1, context - tokens + 1))
    return Prompt(
        id,
        now,
        tokens,
        limit,
        tuple(sorted(map(float, rng.integers(0, context, 8)))),
        bucket=int(rng.integers(0, limit + 1)),
        deadline=now + float(rng.exponential(10)) if rng.random() < deadlines else FOREVER,
        utility=float(rng.choice([0.0, 1.0, 1e12], p=[0.05, 0.9, 0.05])),
        offline=bool(rng.random() < offline),
        exact=int(rng.integers(1, limit + 1)),
    )


def crowded(seed: int) -> Scene:
    """Many prompts in ten seconds that make twice what is forecast, on a cache of forty pages and a host of six."""
    rng, prompts = np.random.default_rng(seed), []
    for id, arrival in enumerate(sorted(rng.uniform(0, 10, 150).tolist())):
        one = _random_prompt(rng, id, arrival, 64, deadlines=0.2, offline=0.2)
        half = tuple(one.exact * share for share in (0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9))
        prompts.append(replace(one, deadline=one.deadline + 2.0, utility=1.0, forecast=half))
    return Scene(
        64, Memory(40, 4, host_pages=6, step_tokens=24), tuple(prompts), {one.id: one.exact for one in prompts}
    )


@dataclass
class Held:
    prompt: Prompt
    made: int = 0
    cached: int = 0  # on the device while it runs, else on the host
    unread: int = 0


@dataclass
class Device:
    """Carries decisions out in the slowest and plainest way, and raises AssertionError for one that cannot be."""

    memory: Memory
    waiting: dict[int, Held] = field(default_factory=dict)
    running: dict[int, Held] = field(default_factory=dict)
    ended: dict[int, str] = field(default_factory=dict)  # finished | cancelled | a reason
    made: dict[int, int] = field(default_factory=dict)  # of those that ended

    def pages(self, of: Mapping[int, Held]) -> int:
        return sum(-(-one.cached // self.memory.page_tokens) for one in of.values())

    def carry_out(self, round: Round, decision: Decision) -> list[int]:
        """Who makes a token in this iteration."""
        self._news(round)
        for id, reason in decision.dropped:
            self._end(id, reason)
        for id in (*decision.offloaded, *decision.discarded):
            self.waiting[id] = self.running.pop(id)
        for id in decision.discarded:
            one = self.waiting[id]
            one.cached, one.unread = 0, one.prompt.tokens + one.made
        assert self.pages(self.waiting) <= self.memory.host_pages
        for id in decision.admitted:
            self.running[id] = self.waiting.pop(id)
        makers = self._read(decision)
        assert self.pages(self.running) <= self.memory.pages
        assert len(self.running) <= self.memory.sequences
        return makers

    def _news(self, round: Round) -> None:
        for id in round.finished:
            self._end(id, "finished")
        for id in round.cancelled:
            self._end(id, "cancelled")
        for one in round.arrived:
            assert one.id not in self.waiting and one.id not in self.running
            self.waiting[one.id] = Held(one, unread=one.tokens)

    def _end(self, id: int, how: str) -> None:
        one = self.running.pop(id, None) or self.waiting.pop(id, None)
        if one is not None:
            self.ended[id], self.made[id] = how, one.made

    def _read(self, decision: Decision) -> list[int]:
        chunks = {chunk.id: chunk.tokens for chunk in decision.chunks}
        assert len(chunks) == len(decision.chunks) and all(tokens > 0 for tokens in chunks.values())
        assert not chunks.keys() & set(decision.idle) and {*chunks, *decision.idle} <= self.running.keys()
        makers, queries = [], 0
        for id, one in self.running.items():
            if id in decision.idle:
                continue
            tokens = chunks.get(id, 1)
            assert tokens == 1 if not one.unread else id in chunks and tokens <= one.unread
            one.cached, one.unread = one.cached + tokens, max(one.unread - tokens, 0)
            queries += tokens
            if not one.unread:
                one.made += 1
                makers.append(id)
            assert one.made <= one.prompt.limit
            assert one.cached + one.unread == one.prompt.tokens + max(one.made - 1, 0) or not one.made or one.unread
        assert queries <= self.memory.step_tokens
        return makers


def play(scene: Scene, packer: Packer, cancels: Mapping[int, Sequence[int]] = {}, most: int = 20_000):
    """The device and the journal, when all has ended. `cancels`: ids by the iteration before which they are cancelled.

    After every decision the scheduler's books are checked, and compared with the device's.
    """
    device, journal = Device(scene.memory), []
    coming = sorted(scene.prompts, key=lambda one: one.arrival)
    finished: tuple[int, ...] = ()
    now = coming[0].arrival
    while coming or device.waiting or device.running:
        arrived = tuple(one for one in coming if one.arrival <= now)
        coming = coming[len(arrived) :]
        round_ = Round(arrived, finished, tuple(cancels.get(len(journal), ())))
        decision = packer.handle(round_, now)
        journal.append((now, round_, decision))
        makers = device.carry_out(round_, decision)
        compare(packer, device)
        finished = tuple(id for id in makers if device.running[id].made == scene.lengths[id])
        now += SECONDS
        assert len(journal) < most, "no end of it"
    packer.check()
    return device, journal


def compare(packer: Packer, device: Device) -> None:
    packer.check()
    assert packer.pages_used == device.pages(device.running)
    assert packer.host_used == device.pages(device.waiting)
    assert (packer.waiting, packer.running) == (len(device.waiting), len(device.running))
    assert all(packer.held(id) == device.memory.need(one.cached) for id, one in device.running.items())
    assert not any(packer.held(id) for id in device.waiting)


def without_deadlines(scene: Scene) -> Scene:
    return replace(scene, prompts=tuple(replace(one, deadline=FOREVER) for one in scene.prompts))
