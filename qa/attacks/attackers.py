"""Attackers in processes of their own, and what honest clients of the service notice of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from pliant.serving.launch import Service
from qa.clients import SPAWN, TIMEOUT, asking, elsewhere
from qa.targets import Targets, memory, say

Attack = Callable[[str], None]
"""Attacks the service at a URL once; a function of a module, since it runs in another process."""


@dataclass
class Attackers:
    """A process for each attack on the service at `url`, which attacks again and again when told to."""

    attacks: Sequence[Attack]
    url: str
    failed: int = 0
    killed: int = 0

    def __post_init__(self) -> None:
        self._begin, self._end = SPAWN.Event(), SPAWN.Event()
        self._busy = [SPAWN.Lock() for _ in self.attacks]
        self._processes = [
            SPAWN.Process(target=_attack_on, args=(one, self.url, self._begin, self._end, busy), daemon=True)
            for one, busy in zip(self.attacks, self._busy, strict=True)
        ]

    def start(self) -> None:
        for process in self._processes:
            process.start()
        time.sleep(3)  # for their start

    def attack(self) -> None:
        self._begin.set()

    def pause(self) -> None:
        """Return when no attack is under way any more; one that goes on after `TIMEOUT` is killed."""
        self._begin.clear()
        for busy, process in zip(self._busy, self._processes, strict=True):
            if busy.acquire(timeout=TIMEOUT):
                busy.release()
            else:
                process.kill()
                self.killed += 1

    def stop(self) -> None:
        self._end.set()
        self._begin.set()
        for process in self._processes:
            process.join(TIMEOUT)
        self.failed = sum(bool(process.exitcode) for process in self._processes) - self.killed
        for process in self._processes:
            process.kill()


def _attack_on(attack: Attack, url: str, begin: Any, end: Any, busy: Any) -> None:
    elsewhere()
    while begin.wait() and not end.is_set():
        with busy:
            if begin.is_set():
                attack(url)


def under_attack(
    targets: Targets,
    service: Service,
    request: tuple[str, str, bytes],
    attacks: Sequence[Attack],
    seconds: float = 10.0,
    headers: Mapping[str, str] = {},
    rounds: int = 1,
) -> None:
    """Compare what honest clients get with what they get while each attack runs again and again in a process of its own.

    The times without are taken before and after, since a machine's speed changes by itself. The p99 of the few hundred
    requests of one round is decided by eight of them: where there are several rounds, their median is judged.
    """
    attackers, honest = Attackers(attacks, service.url), (service.url, request, headers)
    successes, ratios, megabytes = list[float](), list[float](), list[float]()
    attackers.start()
    for _ in range(rounds):
        with asking(*honest) as before:
            time.sleep(seconds)
        megabytes.append(memory(service))
        attackers.attack()
        with asking(*honest) as during:
            until = time.monotonic() + 2 * seconds
            while time.monotonic() < until:
                time.sleep(0.2)
                megabytes.append(memory(service))
        attackers.pause()
        with asking(*honest) as after:
            time.sleep(seconds)
        say(f"{len(during.seconds)} honest requests during the attack; failures: {during.reasons[:3]}")
        say(f"p99 before, during, after: {before.p99:.4f}, {during.p99:.4f}, {after.p99:.4f} s")
        successes.append(during.success / min(before.success, after.success))
        ratios.append(during.p99 / max(before.p99, after.p99))
    attackers.stop()
    if rounds > 1:
        say(f"p99 over without, round by round: {', '.join(f'{ratio:.2f}' for ratio in ratios)}x")
        targets.at_most("attackers that were killed between rounds", attackers.killed, 0)
    targets.at_least("others' success rate over without", min(successes), 0.99)
    targets.at_most("others' p99 over without", median(ratios), 1.5, "x")
    targets.at_most("memory over before", max(megabytes) - megabytes[0], 300, " MB")
    targets.at_most("attackers that failed", attackers.failed, 0)
