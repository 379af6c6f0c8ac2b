"""A scheduler that learns which batches a device lacks memory for plans none of them, and replays."""

from __future__ import annotations

import pytest

from pliant.latency import LatencyTable
from pliant.protocol import Arrived, Changed, Finished, Launch, Limited, replay
from pliant.tokens.artifact import RateRule
from pliant.tokens.policies import POLICIES
from pliant.tokens.policy import Knowledge
from tests.fixtures.tokens.loads import KNOWN, ask, bursty, known, run, scheduler, text

TABLE = LatencyTable((-5, 0), (1, 8), ((0.01, 0.03), (0.02, 0.09)))


def test_more_than_the_limit_takes_the_seconds_of_its_parts():
    limited = Knowledge(TABLE, {}, RateRule((), (0,)), limits={0: 3})
    assert limited.at(0, 3) == TABLE.at(0, 3)
    assert limited.at(0, 7) == pytest.approx(2 * TABLE.at(0, 3) + TABLE.at(0, 1))
    assert limited.at(0, 6) == pytest.approx(2 * TABLE.at(0, 3))
    assert limited.at(-5, 7) == TABLE.at(-5, 7)
    seconds_GN = limited.seconds(8)
    assert (seconds_GN[0] == TABLE.dense(8)[0]).all() and (seconds_GN[1, :4] == TABLE.dense(8)[1, :4]).all()
    assert [seconds_GN[1, n] for n in (6, 7)] == [limited.at(0, n) for n in (6, 7)]
    assert limited.only([0]).limits == {0: 3}
    assert (Knowledge(TABLE, {}, RateRule((), (0,))).seconds(8) == TABLE.dense(8)).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_journal_with_limits_replays_and_every_request_has_its_fate(policy):
    limits = [(0.1 * at, Limited(setting, 4)) for at, setting in enumerate(known(policy).latency.settings, 1)]
    journal, _ = run(bursty(3, 0.3), policy=policy, workers=2, changes=limits)
    assert any(isinstance(entry.event, Limited) for entry in journal)
    assert text(replay(scheduler(policy, 2), journal)) == text(journal)


def launches(journal) -> list[Launch]:
    """The batches that were launched behind the last limit."""
    last = max(at for at, entry in enumerate(journal) if isinstance(entry.event, Limited))
    return [action for entry in journal[last + 1 :] for action in entry.actions if isinstance(action, Launch)]


@pytest.mark.parametrize("most", [1, 5, 12])
def test_the_default_policy_launches_no_batch_beyond_the_limit(most):
    limits = [(0.2, Limited(setting, most)) for setting in KNOWN.latency.settings]
    journal, _ = run(bursty(1, 0.4), changes=limits)
    before, _ = run(bursty(1, 0.4))
    sizes = [len(launch.requests) for launch in launches(journal)]
    assert max(sizes) == most
    assert max(len(action.requests) for entry in before for action in entry.actions if isinstance(action, Launch)) == 16


@pytest.mark.parametrize("policy", ["pets", "otas"])
def test_the_published_policies_know_how_long_their_batches_take_in_parts(policy):
    tokens_scheduler = scheduler(policy)
    tokens_scheduler.handle(Changed(known(policy).plain()), 0.0)
    for setting in known(policy).latency.settings:
        tokens_scheduler.handle(Limited(setting, 4), 0.0)
    (first,) = tokens_scheduler.handle(Arrived(ask(0, within=9.0)), 0.0)
    for id in range(1, 13):
        tokens_scheduler.handle(Arrived(ask(id, within=9.0)), 0.0)
    actions = tokens_scheduler.handle(Finished(first.id, first.expected), first.expected)
    (batch,) = [action for action in actions if isinstance(action, Launch)]
    assert len(batch.requests) == 12
    assert batch.expected == pytest.approx(3 * known(policy).latency.at(batch.setting, 4))
