"""The large model reads a share of the early answers, whatever the load: for nobody, and without a trace elsewhere."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pliant.betting import bet, evidence, initial_wealth
from pliant.cascade.artifact import Candidate, Gate
from pliant.outcomes.record import TARGET
from pliant.protocol import Arrived, replay
from pliant.serving.cascade.assembly import CascadeSystem, make_knowledge, make_scheduler
from pliant.serving.cascade.audit import AT_ONCE, agree, proven
from pliant.serving.client import Client
from pliant.serving.journal import read
from tests.fixtures.cascade.in_process import QUIET, SURE, UNSURE, serve
from tests.fixtures.cascade.published import publish_tiny, tiny_cascade
from tests.fixtures.registry import FolderRegistry

ALL = QUIET.replace(agreement_share=1.0)
LARGE = 1  # number of the large model


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    registry = FolderRegistry(tmp_path_factory.mktemp("registry"))
    publish_tiny(registry)
    return registry


def figures(service, candidate="default"):
    rows = service.endpoint.status()["agreement"]
    return next(((row["compared"], row["agreed"]) for row in rows if row["candidate"] == candidate), None)


def launches_of(service, model=LARGE):
    return sum(len(texts) for device in service.devices for number, texts in device.launches if number == model)


def test_an_early_answer_is_compared_with_what_the_large_model_says(registry):
    async def check(service):
        service.endpoint.drift.counting = True
        await service.ask(SURE, SURE)
        await service.ask(UNSURE, candidate="small")  # which takes green for red
        await asyncio.sleep(1)
        assert (figures(service), figures(service, "small")) == ((2, 2), (1, 0))
        compared = {"task": "colours", "candidate": "default"}
        assert service.sample("pliant_agreement_total", result="agrees", **compared) == 2
        assert service.sample("pliant_agreement_total", task="colours", candidate="small", result="differs") == 1
        taken = service.endpoint.drift.take()[-1]
        assert taken["agreement of colours by default"] == [0, 2]
        assert taken["agreement of colours by small"] == [1, 0]

    serve(registry, check, ALL)


def test_answers_of_the_large_model_and_those_cut_short_are_not_compared(registry):
    async def check(service):
        await service.ask(UNSURE)
        await service.ask(SURE, candidate="single")
        service.devices[0].seconds = 0.5
        (answer,) = await service.ask(UNSURE, deadline=0.589)
        assert answer["cut_short"]
        await asyncio.sleep(5)
        assert service.endpoint.status()["agreement"] == []
        assert launches_of(service) == 2

    serve(registry, check, ALL)


def test_audits_run_whatever_the_load_and_those_too_many_are_counted_as_missed(registry):
    async def check(service):
        await asyncio.gather(*(service.ask(SURE) for _ in range(AT_ONCE + 20)))
        await asyncio.sleep(5)
        (row,) = service.endpoint.status()["agreement"]
        assert row["compared"] + row["missed"] == AT_ONCE + 20
        assert row["compared"] >= AT_ONCE and launches_of(service) == row["compared"]
        assert (
            service.sample("pliant_agreement_total", task="colours", candidate="default", result="missed")
            == row["missed"]
        )

    serve(registry, check, ALL)


def candidates(default):
    """The default says what the small model does; beside it two that are safer, and dearer."""
    never, unsure = Gate("never"), Gate("tabi", threshold=0.9, slope=1e6)
    return (
        Candidate("default", (0, 1), (never,), 0.8, 0.7, 0.001, (1.0, 0.0), agreement=default),
        Candidate("safer", (0, 1), (unsure,), 0.9, 0.8, 0.002, (1.0, 0.3), agreement=0.98),
        Candidate("single", (1,), (), 0.98, 0.95, 0.004, (1.0,), agreement=1.0),
    )


def test_where_more_is_overturned_than_was_proven_a_safer_candidate_is_served(tmp_path, caplog):
    registry = FolderRegistry(tmp_path)
    publish_tiny(registry, candidates=candidates(0.95))

    async def check(service):
        given = []
        for _ in range(30):
            (answer,) = await service.ask(UNSURE)
            given.append(answer["candidate"])
            await asyncio.sleep(0.1)
        moved = given.index("safer")
        assert 2 < moved < 20 and set(given[:moved]) == {"default"} and set(given[moved:]) == {"safer"}
        row = next(row for row in service.endpoint.status()["agreement"] if row["candidate"] == "default")
        assert (row["broken"], row["proven"], row["agreed"]) == (True, pytest.approx(0.95), 0) and row["evidence"] >= 20
        (named,) = await service.ask(UNSURE, candidate="default")
        assert named["levels"] == ["small"], "who names a candidate gets it"
        publish_tiny(registry, seed=1, candidates=candidates(0.95))
        await service.assembly.refresher.serve(CascadeSystem(ALL).source(registry).load(None).catalog)
        assert (await service.ask(UNSURE))[0]["candidate"] == "default", "another version begins anew"

    serve(registry, check, ALL)
    assert "overturns 100.0% of the early answers of default, more than was proven (5.0%)" in caplog.text


def test_what_was_proven_of_nothing_is_never_broken(tmp_path):
    registry = FolderRegistry(tmp_path)
    publish_tiny(registry, candidates=candidates(0.0))

    async def check(service):
        for _ in range(30):
            assert (await service.ask(UNSURE))[0]["candidate"] == "default"
            await asyncio.sleep(0.1)
        (row,) = service.endpoint.status()["agreement"]
        assert (row["compared"], row["agreed"], row["proven"], row["broken"]) == (30, 0, None, False)

    serve(registry, check, ALL)


def test_all_that_differs_is_an_early_answer():
    _, safer, single = candidates(0.95)
    assert proven(replace(safer, agreement=0.98, shares=(1.0, 0.75))) == pytest.approx(1 - 0.02 / 0.25)
    assert proven(replace(safer, agreement=0.98, shares=(1.0, 1.0))) is None, "no answer is early"
    assert proven(replace(single, levels=(0,), agreement=0.9)) == pytest.approx(0.9)


def test_differing_answers_that_double_are_noticed_and_what_was_proven_hardly_ever():
    """Two of a hundred early answers differ, of which 2,000 texts prove 2.6 at most."""
    rng = np.random.default_rng(0)

    def first_broken(rate, audits, runs, before=0):
        wealth, broken = np.tile(initial_wealth(), (runs, 1)), np.full(runs, np.inf)
        for number in range(before + audits):
            differs = rng.random(runs) < (0.02 if number < before else rate)
            wealth = bet(wealth, number, differs, 0.974)
            broken = np.where(np.isinf(broken) & (evidence(wealth, number + 1) >= TARGET), number - before, broken)
        return broken

    assert np.isfinite(first_broken(0.026, 20_000, 200)).mean() <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 200)
    after = first_broken(0.04, 6000, 100, before=500)
    assert np.median(after) <= 2000 and np.isfinite(after).all()


def test_a_comparison_leaves_no_trace_among_answers_tenants_labels_and_deadlines(registry):
    client = Client("acme", 3.0, frozenset({"use"}), "1234abcd")

    async def check(service):
        service.endpoint.drift.counting = True
        (answer,) = await service.ask(SURE, client=client, deadline=2.0)
        usual = service.endpoint.front_door.usual_deadline
        remembered = len(service.endpoint.outcomes.to_dict())
        seconds = service.sample("pliant_tenant_seconds_total", tenant="acme")
        await asyncio.sleep(1)
        assert figures(service) == (1, 1)
        assert service.endpoint.front_door.usual_deadline == usual
        assert service.sample("pliant_arrivals_total", task="colours") == 1
        assert service.sample("pliant_outcomes_total", task="colours", outcome="on_time") == 1
        labels = {"task": "colours", "task_version": "1", "candidate": "default", "reason": "", "level": "small"}
        assert service.sample("pliant_answers_total", **labels) == 1
        assert service.sample("pliant_tenant_seconds_total", tenant="acme") == seconds
        assert service.sample("pliant_tenant_seconds_total", tenant="") is None
        assert len(service.endpoint.outcomes.to_dict()) == remembered
        taken = service.endpoint.drift.take()[-1]
        assert sum(taken["class of colours"]) == sum(taken["level of colours by default"]) == 1
        assert service.endpoint.outcome(answer["id"], "blue", client)["level"] == "small"

    serve(registry, check, ALL)


def test_a_worker_that_dies_meanwhile_loses_no_more_than_the_comparison(registry):
    async def check(service):
        device = service.devices[0]
        await service.ask(SURE)
        device.trouble[LARGE] = "die"
        await asyncio.sleep(0.005)
        answers = await asyncio.gather(*(service.ask(SURE, UNSURE) for _ in range(5)))
        assert [[each["level"] for each in answer] for answer in answers] == [["small", "large"]] * 5
        assert device.restarts == 1
        await asyncio.sleep(5)
        assert service.endpoint.status()["pending"] == 0
        assert service.sample("pliant_outcomes_total", task="colours", outcome="on_time") == 11

    serve(registry, check, ALL)


def test_another_version_is_compared_anew(tmp_path):
    registry = FolderRegistry(tmp_path)
    publish_tiny(registry)

    async def check(service):
        await service.ask(SURE)
        await asyncio.sleep(1)
        assert figures(service) == (1, 1)
        service.devices[0].seconds = 0.5
        await service.ask(SURE)  # is to be compared when another version is served
        service.devices[0].seconds = 0.01
        publish_tiny(registry, seed=1)
        await service.assembly.refresher.serve(CascadeSystem(ALL).source(registry).load(None).catalog)
        await asyncio.sleep(1)
        assert service.endpoint.status()["agreement"] == []
        await service.ask(SURE)
        await asyncio.sleep(1)
        assert figures(service) == (1, 1)

    serve(registry, check, ALL)


def test_the_journal_with_comparisons_replays_to_itself(registry, tmp_path):
    journal = tmp_path / "journal.jsonl"

    async def check(service):
        for gap in (0.0, 0.2, 0.01, 0.3):
            await service.ask(SURE, UNSURE)
            await asyncio.sleep(gap)
        known = make_knowledge(ALL, service.present.catalog)
        return make_scheduler(ALL, known)

    scheduler = serve(registry, check, ALL.replace(journal=journal))
    entries = read(journal)
    assert sum(isinstance(entry.event, Arrived) for entry in entries) > 8
    assert replay(scheduler, entries) == entries


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from([SURE, UNSURE]), st.sampled_from([0.0, 0.005, 0.07, 0.3])), max_size=12))
def test_whatever_comes_is_answered_exactly_as_without_comparisons(registry, plan):
    def answers(share):
        async def check(service):
            tasks = []
            for text, gap in plan:
                tasks.append(asyncio.create_task(service.ask(text)))
                await asyncio.sleep(gap)
            answers = [(await task)[0] for task in tasks]
            count = sum(
                service.sample("pliant_outcomes_total", task="colours", outcome=outcome) or 0
                for outcome in ("on_time", "late")
            )
            assert count == len(plan)
            assert len({answer["id"] for answer in answers}) == len(plan)
            return [(answer["label"], answer["levels"], answer["probabilities"]) for answer in answers]

        return serve(registry, check, QUIET.replace(agreement_share=share))

    for with_share, without in zip(answers(1.0), answers(0.0), strict=True):
        assert with_share[:2] == without[:2]
        assert with_share[2] == pytest.approx(without[2], abs=1e-5)


def test_numbers_agree_within_the_tolerance():
    classes = tiny_cascade("colours", ["sha256:a", "sha256:b"])
    numbers = replace(classes, classes=(), tolerance=0.5)
    assert agree(classes, "red", "red") and not agree(classes, "red", "blue")
    assert agree(numbers, 1.0, 1.5) and not agree(numbers, 1.0, 1.6)
