"""What the cascade service answers as a whole: every field of an answer, of a task and of the status, and what it counts."""

from __future__ import annotations

import pytest

from pliant.cascade.scheduler import CascadeScheduler
from pliant.errors import InputError
from pliant.fallbacks import Fallback
from pliant.serving.cascade import bodies
from tests.fixtures.cascade.in_process import QUIET, SURE, UNSURE, serve
from tests.fixtures.documented import check_answer


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
        assert (cut_short["cut_short"], cut_short["reason"], cut_short["pruned"]) == (True, "late", [])
        taken = service.endpoint.outcome(cut_short["id"], "red")
        assert (taken["level"], taken["promise"]["promised"], taken["promise"]["labels"]) == ("small", None, 0)
        service.devices[0].seconds = 2.0
        (late,) = await service.ask(SURE, deadline=1.0)
        assert (late["on_time"], late["run_seconds"]) == (False, pytest.approx(2.0))

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


def test_answers_tasks_and_status_have_the_documented_fields_and_no_other(registry):
    async def check(service):
        sure, unsure = await service.ask(SURE, UNSURE)
        (pruned,) = await service.ask(UNSURE, accuracy=0.92)
        for answer in (sure, unsure, pruned):
            check_answer(bodies.Answer, {**answer, "cleaned": 0})  # which the route adds
        check_answer(bodies.TakenOutcome, service.endpoint.outcome(sure["id"], "blue"))
        for task in service.endpoint.tasks():
            check_answer(bodies.TaskDescription, task)
        check_answer(bodies.Status, service.endpoint.status())
        with pytest.raises(InputError):
            await service.ask(accuracy=1.0)

    serve(registry, check)
