"""Attackers in processes of their own, and what honest clients of the service notice of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    """Processes that attack again and again once they are let. Those that went on after `TIMEOUT` were `killed`."""

    begin: Any
    failed: int = 0
    killed: int = 0


@contextmanager
def attackers(attacks: Sequence[Attack], url: str) -> Iterator[Attackers]:
    """A process for each attack on the service at `url`, which has imported everything."""
    begin, end, ready = SPAWN.Event(), SPAWN.Event(), SPAWN.Barrier(len(attacks) + 1)
    processes = [SPAWN.Process(target=_attack_on, args=(one, url, begin, end, ready), daemon=True) for one in attacks]
    for process in processes:
        process.start()
    ready.wait(10 * TIMEOUT)
    attacking = Attackers(begin)
    try:
        yield attacking
    finally:
        end.set()
        begin.set()
        for process in processes:
            process.join(TIMEOUT)
            attacking.killed += process.exitcode is None
            attacking.failed += bool(process.exitcode)
            process.kill()


def _attack_on(attack: Attack, url: str, begin: Any, end: Any, ready: Any) -> None:
    elsewhere()
    ready.wait()
    begin.wait()
    while not end.is_set():
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
    honest, failed, killed = (service.url, request, headers), 0, 0
    successes, ratios, megabytes = list[float](), list[float](), list[float]()
    for _ in range(rounds):
        with attackers(attacks, service.url) as attacking:
            with asking(*honest) as before:
                time.sleep(seconds)
            megabytes.append(memory(service))
            attacking.begin.set()
            with asking(*honest) as during:
                until = time.monotonic() + 2 * seconds
                while time.monotonic() < until:
                    time.sleep(0.2)
                    megabytes.append(memory(service))
        with asking(*honest) as after:
            time.sleep(seconds)
        failed, killed = failed + attacking.failed, killed + attacking.killed
        say(f"{len(during.seconds)} honest requests during the attack; failures: {during.reasons[:3]}")
        say(f"p99 before, during, after: {before.p99:.4f}, {during.p99:.4f}, {after.p99:.4f} s")
        successes.append(during.success / min(before.success, after.success))
        ratios.append(during.p99 / max(before.p99, after.p99))
    if rounds > 1:
        say(f"p99 over without, round by round: {', '.join(f'{ratio:.2f}' for ratio in ratios)}x")
        targets.at_most("attackers that were killed between rounds", killed, 0)
    targets.at_least("others' success rate over without", min(successes), 0.99)
    targets.at_most("others' p99 over without", median(ratios), 1.5, "x")
    targets.at_most("memory over before", max(megabytes) - megabytes[0], 300, " MB")
    targets.at_most("attackers that failed", failed, 0)
