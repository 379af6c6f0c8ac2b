"""A bag answers before the scheduler sees a request; the rest goes on, from an exit's layers, to the large model."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from pliant.cascade.artifact import Cascade
from pliant.cascade.scheduler import CascadeScheduler
from pliant.cascade.trunk import Trunk
from pliant.errors import ArtifactError, SchedulerError
from pliant.protocol import Arrived, replay
from pliant.registry import codec
from pliant.registry.names import CASCADE_TASK, cascade_level
from pliant.serving.cascade import bodies
from pliant.serving.cascade.assembly import build_plan, make_knowledge, make_scheduler, model_names
from pliant.serving.cascade.catalog import load_catalog
from pliant.serving.journal import read
from tests.fixtures.cascade.in_process import QUIET, SURE, UNSURE, serve
from tests.fixtures.cascade.published import publish_distilled, tiny_classifier
from tests.fixtures.documented import check_answer

EXIT1, LARGE, REST = range(3)
"""Numbers of the models that devices run; `REST`: what remains of the large one behind the exit."""


@pytest.fixture
def registry(registry):
    publish_distilled(registry)
    return registry


def test_what_the_bag_is_sure_of_is_answered_without_a_launch_and_the_rest_goes_on_from_the_exit(registry, monkeypatch):
    resumed, rest = [], Trunk.rest
    monkeypatch.setattr(Trunk, "rest", lambda *given: resumed.append(given) or rest(*given))

    async def check(service):
        trials = len(resumed)
        sure, unsure = await service.ask(SURE, UNSURE)
        assert (sure["levels"], sure["label"], sure["cut_short"]) == (["bag"], "blue", False)
        assert sure["versions"]["models"] == {"bag": 1}
        assert (unsure["levels"], unsure["label"]) == (["bag", "exit1", "large"], "green")
        assert [model for model, _ in service.devices[0].launches] == [EXIT1, REST]
        assert len(resumed) == trials + 1, "the large model went on from what the exit left"
        (alone,) = await service.ask(UNSURE, candidate="only large")
        assert alone["probabilities"] == pytest.approx(unsure["probabilities"], abs=1e-5)
        assert service.devices[0].launches[-1][0] == LARGE
        assert service.sample("pliant_answers_total", level="bag", task="colours", **LABELS) == 1
        for answer in (sure, unsure):
            check_answer(bodies.Answer, {**answer, "cleaned": 0})
        (task,) = service.endpoint.tasks()
        check_answer(bodies.TaskDescription, task)
        assert [level["kind"] for level in task["levels"]] == ["bag", "exit", "classifier"]
        assert task["promise"] == {"kind": "drop", "amount": 0.01, "labels": 12}
        check_answer(bodies.Status, service.endpoint.status())

    serve(registry, check)


LABELS = {"task_version": "2", "candidate": "default", "reason": ""}


def test_a_bag_alone_may_be_asked_for_and_is_as_quick_as_it_says(registry):
    async def check(service):
        (quick,) = await service.ask(UNSURE, latency=0.001)
        assert (quick["candidate"], quick["levels"], quick["cut_short"]) == ("only bag", ["bag"], False)
        assert service.devices[0].launches == []

    serve(registry, check)


def test_where_no_device_answers_in_time_the_bags_answer_is_given_and_marked(registry):
    async def check(service):
        service.devices[0].seconds = 5.0
        (late,) = await service.ask(UNSURE, deadline=1.0)
        assert (late["levels"], late["cut_short"], late["reason"], late["on_time"]) == (["bag"], True, "late", True)
        taken = service.endpoint.outcome(late["id"], "red")
        assert (taken["level"], taken["promise"]["promised"]) == ("bag", None)
        (exact,) = await service.ask(UNSURE, candidate="only large", deadline=20.0)
        assert exact["levels"] == ["large"]

    serve(registry, check)


def test_where_no_scheduler_is_left_the_bags_answer_is_given_and_a_request_without_one_fails(registry, monkeypatch):
    async def broken(*_):
        raise SchedulerError("the scheduler failed")

    async def check(service):
        monkeypatch.setattr(type(service.present.driver), "submit", broken)
        (answer,) = await service.ask(UNSURE)
        assert (answer["levels"], answer["cut_short"], answer["reason"]) == (["bag"], True, "failed")
        with pytest.raises(SchedulerError):
            await service.ask(UNSURE, candidate="only large")

    serve(registry, check)


def test_where_there_is_no_room_the_bag_answers_all(registry):
    async def check(service):
        service.devices[0].seconds = 0.2
        answers = await service.ask(*[UNSURE] * 5)
        assert {answer["reason"] for answer in answers} == {"", "full"}
        assert sum(answer["levels"] == ["bag"] for answer in answers) >= 2

    serve(registry, check, QUIET.replace(max_waiting=2))


def test_the_scheduler_knows_what_the_bag_leaves_to_win(registry, tmp_path):
    settings = QUIET.replace(journal=tmp_path / "journal.jsonl")

    async def check(service):
        service.devices[0].trouble = {REST: "die"}
        await asyncio.gather(*(service.ask(SURE, UNSURE, deadline=0.1 + 0.05 * i, utility=3.0) for i in range(9)))

    serve(registry, check, settings)
    journal = read(tmp_path / "journal.jsonl")
    came = [entry.event.request for entry in journal if isinstance(entry.event, Arrived)]
    assert len(came) == 9, "texts that the bag answers never come"
    assert all(0.2 * 3 < request.utility < 3 for request in came)
    assert (
        replay(make_scheduler(settings, make_knowledge(settings, load_catalog(registry, "champion"))), journal)
        == journal
    )


def test_the_large_model_alone_takes_the_place_of_the_rest_of_the_path_where_the_scheduler_says_so(
    registry, monkeypatch
):
    async def check(service):
        monkeypatch.setattr(CascadeScheduler, "candidate", lambda _self, _task, _asked, _length: 2)
        sure, unsure = await service.ask(SURE, UNSURE)
        assert (sure["candidate"], sure["levels"]) == ("default", ["bag"])
        assert (unsure["candidate"], unsure["levels"]) == ("only large", ["large"])
        service.devices[0].seconds = 5.0
        (late,) = await service.ask(UNSURE, deadline=1.0)
        assert (late["candidate"], late["levels"], late["reason"]) == ("default", ["bag"], "late")

    serve(registry, check)


def test_an_exit_is_where_its_classifier_is_and_what_remains_of_that_one_has_a_number_of_its_own(registry):
    settings, catalog = QUIET.replace(workers=2, placement="own"), load_catalog(registry, "champion")
    first, second = (build_plan(settings, catalog, worker).models for worker in range(2))
    assert second == ()
    assert [(model.number, model.begin, model.exit is not None) for model in first] == [
        (EXIT1, 0, True),
        (LARGE, 0, False),
        (REST, 1, False),
    ]
    assert len({(model.folder, model.digest) for model in first}) == 1
    assert model_names(catalog) == ["colours/exit1", "colours/large", "colours/large from layer 2"]


def test_an_exit_whose_classifier_is_no_level_is_refused(registry):
    cascade = codec.load(Cascade, registry.fetch(CASCADE_TASK + "colours")[0])
    other = registry.publish(cascade_level("colours", "large"), tiny_classifier("colours", "large", seed=7))
    *small, large = cascade.levels
    levels = (*small, replace(large, classifier=other))
    registry.publish(CASCADE_TASK + "colours", replace(cascade, levels=levels))
    with pytest.raises(ArtifactError, match="the exit exit1 of colours is on a classifier that is none of its levels"):
        load_catalog(registry, "champion")
