"""What the cascade service answers as a whole: every field of an answer, of a task and of the status, and what it counts."""

from __future__ import annotations

import asyncio

import pytest

from pliant.cascade.scheduler import CascadeScheduler
from pliant.errors import InputError
from pliant.fallbacks import Fallback
from pliant.registry.names import CASCADE_TASK
from pliant.serving.cascade.request import TextRequest
from pliant.serving.client import Client
from pliant.serving.http.api_errors import ApiError
from tests.fixtures.cascade.in_process import QUIET, SURE, UNSURE, serving
from tests.fixtures.cascade.published import DEVICE, publish_tiny
from tests.fixtures.fakes import run_virtually
from tests.fixtures.registry import FolderRegistry

ACME = Client("acme", 3.0, frozenset({"use"}), "1234abcd")


@pytest.fixture
def registry(tmp_path):
    registry = FolderRegistry(tmp_path)
    publish_tiny(registry)
    return registry


def serve(registry, check, settings=QUIET):
    async def main():
        async with serving(registry, settings) as service:
            await check(service)

    run_virtually(main())


def without(fields: dict, *names: str) -> dict:
    return {name: value for name, value in fields.items() if name not in names}


def test_an_answer_says_how_it_came_about_and_how_long_it_took(registry):
    usual = {"task": "colours", "interval": None, "candidate": "default", "cut_short": False, "reason": ""}
    usual |= {"pruned": [], "truncated": False, "on_time": True}

    async def check(service):
        sure, unsure = await service.ask(SURE, UNSURE)
        assert without(sure, "id", "probabilities", "confidence", "queue_seconds", "run_seconds") == {
            **usual,
            "label": "blue",
            "level": "small",
            "levels": ["small"],
            "versions": {"task": 1, "models": {"small": 1}},
        }
        assert without(unsure, "id", "probabilities", "confidence", "queue_seconds", "run_seconds") == {
            **usual,
            "label": "green",
            "level": "large",
            "levels": ["small", "large"],
            "versions": {"task": 1, "models": {"small": 1, "large": 1}},
        }
        for answer, label, queued, ran in ((sure, "blue", 0.0, 0.01), (unsure, "green", 0.01, 0.02)):
            assert list(answer["probabilities"]) == ["red", "green", "blue"]
            assert sum(answer["probabilities"].values()) == pytest.approx(1.0, abs=2e-6)
            assert answer["confidence"] == answer["probabilities"][label] == round(answer["confidence"], 6) > 0.99
            assert (answer["queue_seconds"], answer["run_seconds"]) == (pytest.approx(queued), pytest.approx(ran))
        labels = {"task": "colours", "task_version": "1", "candidate": "default", "reason": ""}
        for level in ("small", "large"):
            assert service.sample("pliant_answers_total", level=level, **labels) == 1
        assert service.sample("pliant_outcomes_total", task="colours", outcome="on_time") == 2

    serve(registry, check)


def test_the_scheduler_chooses_the_candidate_unless_the_request_names_it(registry, monkeypatch):
    async def check(service):
        monkeypatch.setattr(CascadeScheduler, "candidate", lambda _self, _task, _asked, _length: 3)
        (answer,) = await service.ask(SURE)
        assert (answer["candidate"], answer["levels"]) == ("single", ["large"])
        (named,) = await service.ask(SURE, candidate="default")
        assert (named["candidate"], named["levels"]) == ("default", ["small"])

    serve(registry, check)


def test_an_answer_that_came_late_says_so_and_one_that_was_cut_short_stands_under_no_promise(registry):
    async def check(service):
        service.devices[0].seconds = 0.5
        (cut_short,) = await service.ask(UNSURE, deadline=0.589)
        taken = service.endpoint.outcome(cut_short["id"], "red")
        assert (taken["level"], taken["promise"]["promised"], taken["promise"]["labels"]) == ("small", None, 0)
        service.devices[0].seconds = 2.0
        (late,) = await service.ask(SURE, deadline=1.0)
        assert (late["on_time"], late["run_seconds"]) == (False, pytest.approx(2.0))

    serve(registry, check)


def test_an_answer_belongs_to_the_tenant_of_its_request(registry):
    async def check(service):
        (answer,) = await service.ask(SURE, client=ACME)
        with pytest.raises(ApiError, match="recent answer to you"):
            service.endpoint.outcome(answer["id"], "blue", Client("other", roles=frozenset({"use"})))
        assert service.endpoint.outcome(answer["id"], "blue", ACME)["correct"] is True

    serve(registry, check)


def test_a_request_that_names_its_candidate_gets_it_and_one_that_is_not_there_is_refused(registry):
    async def check(service):
        (answer,) = await service.ask(SURE, candidate="single")
        assert (answer["candidate"], answer["levels"]) == ("single", ["large"])
        with pytest.raises(InputError, match="candidate is other, but must be one of default, small, pruned, single"):
            await service.ask(SURE, candidate="other")

    serve(registry, check)


def test_a_deadline_counts_from_arrival(registry):
    async def check(service):
        await asyncio.sleep(5.0)
        with pytest.raises(ApiError) as refused:
            await service.endpoint.predict(request(deadline=2.0), service.endpoint.now - 3.0)
        assert (refused.value.status, refused.value.code) == (503, "late")
        answer = await service.endpoint.predict(request(deadline=2.0), service.endpoint.now - 1.0)
        assert answer["answers"][0]["on_time"] is True
        assert service.sample("pliant_outcomes_total", task="colours", outcome="dropped_late") == 1

    serve(registry, check)


def request(**fields):
    return TextRequest("colours", ((SURE, None),), **fields)


def test_a_task_is_described_with_all_of_its_levels_and_candidates(registry):
    digests = {}

    async def check(service):
        catalog = service.present.catalog
        served = catalog.tasks["colours"]
        digests.update({"task": served.digest, "small": served.levels[0].digest, "large": served.levels[1].digest})
        (task,) = service.endpoint.tasks()
        assert task == {
            "name": "colours",
            "version": 1,
            "digest": digests["task"],
            "classes": ["red", "green", "blue"],
            "pair": False,
            "max_length": 32,
            "tolerance": None,
            "device": DEVICE,
            "precision": "float32",
            "target": 0.95,
            "confidence": 0.95,
            "levels": [
                {
                    "name": name,
                    "version": 1,
                    "digest": digests[name],
                    "max_length": 32,
                    "temperature": 1.0,
                    "accuracy": accuracy,
                    "calibration_error": 0.02,
                }
                for name, accuracy in (("small", 0.8), ("large", 0.9))
            ],
            "candidates": [
                {
                    "name": name,
                    "levels": levels,
                    "accuracy": accuracy,
                    "promised": promised,
                    "test_accuracy": accuracy,
                    "seconds": seconds,
                    "shares": shares,
                    "kept": kept,
                }
                for name, levels, accuracy, promised, seconds, shares, kept in (
                    ("default", ["small", "large"], 0.95, 0.9, 0.002, [1.0, 0.3], 1.0),
                    ("small", ["small"], 0.8, 0.7, 0.001, [1.0], 1.0),
                    ("pruned", ["small", "large"], 0.96, 0.92, 0.003, [1.0, 1.0], 0.6),
                    ("single", ["large"], 0.98, 0.95, 0.004, [1.0], 1.0),
                )
            ],
        }
        described = service.endpoint.describe("colours")
        assert (described.classes, described.pair, described.max_length) == (("red", "green", "blue"), False, 32)
        with pytest.raises(ApiError) as refused:
            service.endpoint.describe("sounds")
        assert (refused.value.status, refused.value.field) == (404, "task")

    serve(registry, check)


def test_the_status_says_what_is_served_by_how_many_workers_and_what_labels_have_shown(registry):
    async def check(service):
        (answer,) = await service.ask(SURE)
        service.endpoint.outcome(answer["id"], "red")
        service.devices[1].fallbacks = (Fallback("memory", "large runs at most 2 at a time"),)
        status = service.endpoint.status()
        assert (status["workers"], status["placement"]) == (2, "own")
        assert status["devices"] == [
            {"name": "cpu", "up": True, "fallbacks": []},
            {"name": "cpu", "up": True, "fallbacks": [{"kind": "memory", "reason": "large runs at most 2 at a time"}]},
        ]
        assert status["tasks"] == service.endpoint.tasks()
        (figures,) = status["outcomes"]
        assert (figures["task"], figures["candidate"], figures["labels"], figures["accuracy"]) == (
            *("colours", "default"),
            *(1, 0.0),
        )
        assert (status["pending"], status["waiting"], status["generation"], status["ready"]) == (0, 0, 1, True)

    serve(registry, check, QUIET.replace(workers=2, placement="own"))


def test_alarms_are_listed_and_taken_back_by_their_id(registry):
    async def check(service):
        while not service.endpoint.outcomes.alarms():
            (answer,) = await service.ask(SURE, candidate="default")
            service.endpoint.outcome(answer["id"], "red")
        (alarm,) = service.endpoint.outcomes.alarms()
        assert (alarm["task"], alarm["version"], alarm["candidate"], alarm["taken_back"]) == (
            *("colours", 1, "default"),
            None,
        )
        root = Client("root", 1.0, frozenset({"admin"}), "5678abcd")
        assert service.endpoint.outcomes.take_back(alarm["id"], root)["taken_back"]["key"] == "5678abcd"
        assert service.endpoint.status()["outcomes"] == []

    serve(registry, check)


def test_an_error_of_one_text_is_counted_and_stands_in_its_place(registry):
    async def check(service):
        answers = await service.ask(*[SURE] * 5)
        assert answers[-1] == {
            "error": {"code": "full", "field": None, "message": answers[-1]["error"]["message"]},
        }
        assert service.sample("pliant_refusals_total", code="full") == 2
        assert service.sample("pliant_outcomes_total", task="colours", outcome="dropped_full") == 2

    serve(registry, check, QUIET.replace(max_waiting=2))


def test_tasks_are_listed_in_the_order_of_their_names(registry):
    publish_tiny(registry, "bright", seed=1)

    async def check(service):
        assert [task["name"] for task in service.endpoint.tasks()] == ["bright", "colours"]
        assert service.present.catalog.pointers.keys() >= {CASCADE_TASK + "bright", CASCADE_TASK + "colours"}

    serve(registry, check)
