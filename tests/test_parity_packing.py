"""One scheduler, two clocks, for packing: see tests/test_parity.py. Its rounds and decisions have a journal of their own."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from pliant.packing.scheduling.common_pages import CommonPages, missing
from pliant.packing.scheduling.journal import Journal, encode, replay
from pliant.packing.scheduling.policy import POLICIES, View
from pliant.packing.scheduling.request import StepInput, StepPlan
from pliant.packing.scheduling.scheduler import PackingScheduler
from pliant.packing.scheduling.simulated import simulate
from tests.fixtures import golden_journals
from tests.fixtures.packing import samples


def first_difference(fresh: PackingScheduler, journal: Journal) -> int | None:
    """Index of the first decision that comes out otherwise. Stops there: what has gone astray may not know a later id."""
    return next((at for at, entry in enumerate(journal) if replay(fresh, [entry]) != [entry]), None)


def counts(journal: Journal) -> dict[str, int]:
    counted = {field.name: 0 for kind in (StepInput, StepPlan) for field in fields(kind)}
    for _, round_, decision in journal:
        for of in (round_, decision):
            for field in fields(of):
                counted[field.name] += len(getattr(of, field.name))
    return counted


@pytest.mark.parametrize("name", golden_journals.PACKING)
def test_the_golden_journals_of_packing_replay_exactly(name):
    """If decisions were meant to change: `python -m tests.fixtures.golden_journals`."""
    journal = golden_journals.read_packing(name)
    fresh, _ = golden_journals.PACKING[name]
    assert first_difference(fresh(), journal) is None
    assert [encode(*entry) for entry in journal] == golden_journals.file(name).read_text("utf-8").splitlines()


def test_the_golden_journal_of_common_beginnings_holds_every_kind_of_decision_about_them_and_stays_small():
    journal = golden_journals.read_packing("packing_shared")
    counted, chunks = counts(journal), [chunk for *_, decision in journal for chunk in decision.prefill_chunks]
    assert all(counted[name] for name in ("cancelled", "offloaded", "discarded", "forgotten")), counted
    assert sum(len(chunk.taken) for chunk in chunks) > 100 and sum(len(chunk.kept) for chunk in chunks) > 50
    assert len({number for chunk in chunks for _, number in chunk.kept}) < sum(len(chunk.kept) for chunk in chunks), (
        "no page was read, forgotten and read again"
    )
    assert golden_journals.file("packing_shared").stat().st_size < 50_000


def newest_first(pages, room):
    """Forget the pages that were used last."""
    gone = list(pages._unused)[: room - 1 if room else None : -1]
    for number in gone:
        del pages._unused[number], pages._users[number]
    return tuple(gone)


def of_anybody(view, waiting, *_):
    """Count unused pages as if somebody used them, too."""
    return view.common.known(missing(waiting.prompt, waiting.cached, view.memory.page_tokens))


@pytest.mark.parametrize(
    ("kind", "name", "other"),
    [
        (CommonPages, "forget", newest_first),
        (View, "in_use", of_anybody),
        (View, "to_read", lambda _, waiting, *__: max(waiting.unread, 1)),
    ],
)
def test_the_golden_journal_of_common_beginnings_notices_other_decisions(monkeypatch, kind, name, other):
    """Planted: the pages used last are forgotten first, unused pages need no room, and all tokens are to be read."""
    monkeypatch.setattr(kind, name, other)
    journal = golden_journals.read_packing("packing_shared")
    assert first_difference(golden_journals.shared_scheduler(), journal) is not None


@pytest.mark.parametrize("name", POLICIES)
def test_a_simulated_journal_of_packing_replays_exactly(name):
    load, journal = samples.crowded(2), []

    def note(now, round_, decision, scheduler):
        journal.append((now, round_, decision))

    simulate(load.prompts, load.lengths, load.rules(name), load.memory, samples.STEPS, leaps=False, observe=note)
    assert first_difference(PackingScheduler(load.rules(name), load.memory), journal) is None
    assert len(journal) > 100


def test_what_the_device_does_and_what_the_simulator_does_is_decided_alike():
    """The same seconds an iteration: the plain device's journal is the simulator's."""
    load, seen = samples.without_deadlines(samples.crowded(3)), []

    def note(now, round_, decision, scheduler):
        seen.append((now, round_, decision))

    _, journal = samples.play(load, PackingScheduler(load.rules("default"), load.memory))
    even = replace(samples.STEPS, base=samples.SECONDS, query=0.0, sequence=0.0, token=0.0, swap=0.0)
    simulate(load.prompts, load.lengths, load.rules("default"), load.memory, even, leaps=False, observe=note)
    assert [decision for *_, decision in seen] == [decision for *_, decision in journal[: len(seen)]]
    assert len(seen) >= len(journal) - 1  # the simulator does not tell who finished last


def test_the_comparison_fails_for_other_forecasts_and_for_one_changed_decision():
    journal = golden_journals.read_packing()
    doubled = [
        (now, replace(round_, arrived=tuple(map(more, round_.arrived))), decision) for now, round_, decision in journal
    ]
    assert first_difference(golden_journals.packing_scheduler(), doubled) is not None
    at = next(at for at, (*_, decision) in enumerate(journal) if decision.offloaded)
    now, round_, decision = journal[at]
    changed = replace(decision, offloaded=(), discarded=decision.offloaded)
    assert (
        first_difference(
            golden_journals.packing_scheduler(), [*journal[:at], (now, round_, changed), *journal[at + 1 :]]
        )
        == at
    )


def more(prompt):
    return replace(prompt, forecast=tuple(2 * tokens for tokens in prompt.forecast))
