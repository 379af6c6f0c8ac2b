"""The golden journals of tests/golden: what they are made of, and `python -m tests.golden_journals` to make them again.

They pin the schedulers' decisions. Make them again only after a change that was meant to change decisions, and say so
in the change log.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

from pliant.bins.knowledge import Config, Knowledge
from pliant.bins.scheduler import BinsScheduler
from pliant.cascade.scheduler import CascadeScheduler
from pliant.journal import decode, encode
from pliant.packing import journal as packing
from pliant.packing.scheduler import Packer
from pliant.protocol import Journal, Scheduler
from pliant.tokens.scheduler import TokensScheduler
from tests.pliant.bins import loads as bins
from tests.pliant.cascade import loads as cascades
from tests.pliant.packing import samples
from tests.pliant.tokens import loads

FOLDER = Path(__file__).resolve().parent / "golden"
WORKERS = 2


def tokens_scheduler() -> TokensScheduler:
    return loads.scheduler("default", WORKERS, max_waiting=40, restart_pause=0.05, margin=0.05)


def tokens_journal() -> Journal:
    """Eight tenths of a second of bursts on two workers of which one launch in four fails; halfway the gammas are fewer."""
    load = loads.bursty(11, 0.2)
    world = loads.World(5, failing=0.25, failing_restarts=0.3, jitter=0.15)
    fewer = loads.KNOWN.only((-10, 0))
    journal, _ = loads.run(load, world, changes=[(0.4, fewer)], fresh=tokens_scheduler())
    return journal


def cascade_scheduler() -> CascadeScheduler:
    return cascades.scheduler(cascades.known(WORKERS), WORKERS, max_waiting=24, restart_pause=0.05, margin=0.05)


def cascade_journal() -> Journal:
    """A quarter of a second of two tasks on two workers of which one launch in four fails; at first it is too much."""
    load, world = cascades.bursty(3, 0.12, (1200, 300)), cascades.World(5, 1.0, 0.25, 0.5, 0.15)
    journal, _ = cascades.run(load, world, WORKERS, fresh=cascade_scheduler())
    return journal


BINS = {"workers": 3, "max_waiting": 6, "restart_pause": 0.02, "margin": 0.05, "swaps": 0.4, "attempts": 2}


def bins_config(placement: str) -> Config:
    """Where devices hold one runtime each, a plan is made each twentieth of a second, at first for long texts."""
    return Config(**BINS, period=0.05, deployed=(3, 5, 5) if placement == "single" else ())


def bins_known(placement: str) -> Knowledge:
    return bins.known(placement, 2, (1, 4))


def bins_scheduler(placement: str) -> BinsScheduler:
    return BinsScheduler(bins_known(placement), bins_config(placement))


def bins_journal(placement: str) -> Journal:
    """Two streams on three devices of which one launch in ten fails; one device is down for a while, half is too much."""
    world = bins.World(5, 1.0, 0.1, 0.5, 0.1, 0.15, {1: (0.1, 0.2)})
    load = bins.bursty(3, 0.08, (200, 1600, 600), 2)
    journal, _ = bins.run(load, bins_known(placement), world, **asdict(bins_config(placement)))
    return journal


GOLDEN: dict[str, tuple[Callable[[], Scheduler], Callable[[], Journal]]] = {
    "tokens": (tokens_scheduler, tokens_journal),
    "cascade": (cascade_scheduler, cascade_journal),
    "bins": (partial(bins_scheduler, "single"), partial(bins_journal, "single")),
    "bins_shared": (partial(bins_scheduler, "shared"), partial(bins_journal, "shared")),
}
"""Name -> a fresh scheduler, and how the journal is made. packing's is of another kind: see `packer`."""


def packer() -> Packer:
    return Packer(packing_scene().rules("default", level=0.0), packing_scene().memory)


def packing_scene() -> samples.Scene:
    return samples.crowded(6)


def packing_journal() -> packing.Journal:
    """One is cancelled as it finishes, and later one in seven wherever they are."""
    _, plain = samples.play(packing_scene(), packer())
    at, ids = next((at, told.finished) for at, (_, told, _) in enumerate(plain) if at > 30 and told.finished)
    return samples.play(packing_scene(), packer(), {at: ids, at + 9: range(0, 150, 7)})[1]


def file(name: str) -> Path:
    return FOLDER / f"{name}.jsonl"


def read(name: str) -> Journal:
    return [decode(line) for line in file(name).read_text(encoding="utf-8").splitlines()]


def read_packing() -> packing.Journal:
    return [packing.decode(line) for line in file("packing").read_text(encoding="utf-8").splitlines()]


def main() -> None:
    for name, (_, make) in GOLDEN.items():
        write(name, [encode(entry) for entry in make()])
    write("packing", [packing.encode(*entry) for entry in packing_journal()])


def write(name: str, lines: list[str]) -> None:
    file(name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    sys.stdout.write(f"{file(name).name}: {len(lines)} entries\n")


if __name__ == "__main__":
    main()
