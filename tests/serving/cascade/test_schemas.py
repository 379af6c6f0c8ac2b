"""The OpenAPI page of cascade documents what the service takes and answers."""

from __future__ import annotations

import pytest

from pliant.errors import InputError
from pliant.serving.cascade import bodies
from tests.fixtures.cascade.in_process import QUIET, SURE, UNSURE, serving
from tests.fixtures.cascade.published import publish_tiny
from tests.fixtures.documented import check_answer
from tests.fixtures.fakes import run_virtually
from tests.fixtures.registry import FolderRegistry


@pytest.fixture
def registry(tmp_path):
    registry = FolderRegistry(tmp_path)
    publish_tiny(registry)
    return registry


def test_answers_tasks_and_status_have_the_documented_fields_and_no_other(registry):
    async def main():
        async with serving(registry, QUIET) as service:
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

    run_virtually(main())
