"""The cascade service without HTTP, with models that run in this process and in virtual time."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import numpy as np
import pytest

from pliant.cascade.calibrate import fit_spread
from pliant.errors import ArtifactError, InputError
from pliant.outcomes.files import read_inputs, read_labels
from pliant.registry.names import CASCADE_TASK, cascade_level
from pliant.serving.cascade.assembly import CascadeSystem, build_plan, model_names
from pliant.serving.cascade.catalog import load_catalog
from pliant.serving.http.api_errors import ApiError
from pliant.serving.lifecycle import system
from tests.fixtures.cascade.in_process import QUIET, SURE, UNSURE, serve, serving
from tests.fixtures.cascade.published import LEVELS, publish_tiny, tiny_cascade, tiny_classifier


def test_targets_choose_the_candidate_and_one_out_of_reach_is_refused_with_the_best(registry):
    async def check(service):
        assert (await service.ask(accuracy=0.93))[0]["levels"] == ["large"]
        (quick,) = await service.ask(UNSURE, latency=0.001)
        assert (quick["candidate"], quick["level"], quick["cut_short"]) == ("small", "small", False)
        with pytest.raises(InputError, match=r"accuracy is 0.99, but must be at most 0.95"):
            await service.ask(accuracy=0.99)

    serve(registry, check)


def test_a_pruning_candidate_tells_which_words_the_large_model_never_saw(registry):
    async def check(service):
        (answer,) = await service.ask(UNSURE, accuracy=0.92)
        assert (answer["candidate"], answer["label"]) == ("pruned", "green")
        assert [one["word"] for one in answer["pruned"]] == ["the", "of", "a", "small", "house"]
        assert answer["pruned"][1] == {"text": 0, "start": 12, "end": 14, "word": "of"}

    serve(registry, check)


def test_many_texts_are_answered_in_their_order_and_share_launches(registry):
    async def check(service):
        answers = await service.ask(*[SURE, UNSURE] * 20)
        assert [answer["level"] for answer in answers] == ["small", "large"] * 20
        assert len({answer["id"] for answer in answers}) == 40
        assert max(len(texts) for _, texts in service.devices[0].launches) > 8

    serve(registry, check)


def test_where_some_texts_find_no_room_the_others_have_answers_and_where_none_does_all_is_refused(registry):
    async def check(service):
        answers = await service.ask(*[SURE] * 5)
        assert [answer.get("error", {}).get("code") for answer in answers] == [None, None, None, "full", "full"]
        holder = asyncio.create_task(service.ask(*[SURE] * 5))
        await asyncio.sleep(0.001)
        with pytest.raises(ApiError) as refused:
            await service.ask(SURE, SURE)
        assert refused.value.code == "full"
        await holder
        assert service.sample("pliant_refusals_total", code="full") == 4

    serve(registry, check, QUIET.replace(max_waiting=2))


def test_after_a_worker_died_in_the_large_models_launch_it_is_run_again(registry):
    async def check(service):
        service.devices[0].trouble, service.devices[0].restart_seconds = {1: "die"}, 0.2
        (answer,) = await service.ask(UNSURE)
        assert (answer["level"], answer["label"], service.devices[0].restarts) == ("large", "green", 1)

    serve(registry, check)


def test_where_no_time_is_left_after_a_worker_died_the_former_levels_answer_stands(registry):
    async def check(service):
        service.devices[0].trouble, service.devices[0].restart_seconds = {1: "die"}, 5.0
        (answer,) = await service.ask(UNSURE, deadline=2.0)
        assert (answer["level"], answer["reason"], answer["on_time"]) == ("small", "failed", True)
        assert (await service.ask(SURE, deadline=9.0))[0]["level"] == "small"

    serve(registry, check)


def test_workers_of_their_own_load_their_level_alone_and_every_device_has_its_turn(registry):
    settings = QUIET.replace(workers=3, placement="own", device="cuda:0, cuda:1", any_profile=True)
    catalog = load_catalog(registry, "champion")
    plans = [build_plan(settings, catalog, worker) for worker in range(2)]
    assert [[model.number for model in plan.models] for plan in plans] == [[0], [1]]
    assert [plan.plan.device for plan in plans] == ["cuda:0", "cuda:1"]
    shared = build_plan(QUIET, catalog, 0)
    assert [(model.number, model.importance) for model in shared.models] == [(0, True), (1, False)]
    assert model_names(catalog) == ["colours/small", "colours/large"]


def test_two_tasks_share_a_service_and_their_models_are_kept_apart(registry):
    publish_tiny(registry, "shades", seed=1)

    async def check(service):
        one, other = await asyncio.gather(service.ask(UNSURE), service.ask(UNSURE, task="shades"))
        assert (one[0]["task"], other[0]["task"]) == ("colours", "shades")
        assert {model for model, _ in service.devices[0].launches} == {0, 1, 2, 3}

    serve(registry, check)


def test_a_regressions_answer_is_a_value_with_the_interval_that_it_is_sure_of(registry):
    digests = [
        registry.publish(cascade_level("warmth", level), tiny_classifier("warmth", level, classes=()))
        for level in LEVELS
    ]
    cascade = tiny_cascade("warmth", digests, classes=(), tolerance=0.5)
    rng = np.random.default_rng(0)
    spread = fit_spread(rng.normal(size=200), rng.normal(size=200), rng.integers(3, 9, 200))
    levels = tuple(replace(level, spread=spread) for level in cascade.levels)
    registry.publish(CASCADE_TASK + "warmth", replace(cascade, levels=levels))

    async def check(service):
        (answer,) = await service.ask("rose", task="warmth")
        assert answer["probabilities"] is None
        assert answer["interval"] == [answer["label"] - 0.5, answer["label"] + 0.5]
        assert 0 < answer["confidence"] < 1
        assert service.endpoint.outcome(answer["id"], answer["label"] + 0.4)["correct"] is True

    serve(registry, check)


def test_a_tokenizer_that_cannot_be_used_is_an_error_before_anything_starts(registry, monkeypatch):
    monkeypatch.setattr(system, "open_registry", lambda _settings: registry)
    CascadeSystem(QUIET).check()
    digests = []
    for level in LEVELS:
        classifier = replace(tiny_classifier("colours", level, 1), tokenizer="{}")
        digests.append(registry.publish(cascade_level("colours", level), classifier))
    registry.publish(CASCADE_TASK + "colours", tiny_cascade("colours", digests))
    with pytest.raises(ArtifactError, match="tokenizer"):
        CascadeSystem(QUIET).check()


def test_an_answer_can_be_labelled_after_a_restart_and_its_label_says_what_every_level_gave(registry, tmp_path):
    settings = QUIET.replace(home=tmp_path, outcomes_days=30.0, keep_inputs=True)
    ids = []

    async def answering():
        async with serving(registry, settings) as service:
            ids.extend(answer["id"] for answer in await service.ask(SURE, UNSURE))

    async def labelling():
        async with serving(registry, settings) as service:
            assert [service.endpoint.outcome(id, "green")["correct"] for id in ids] == [False, True]
            assert service.endpoint.outcome(ids[0], "green")["repeated"]

    for main in (answering, labelling):
        asyncio.run(main())
    folder = tmp_path / "outcomes" / "cascade"
    sure, unsure = read_labels(folder)
    assert (sure.level, dict(sure.former)) == ("small", {})
    assert unsure.level == "large" and list(unsure.former) == ["small"]
    label, confidence = unsure.former["small"]
    assert label in ("red", "green", "blue") and 0 < confidence <= 1
    assert [json.loads(entry.content) for entry in read_inputs(folder)] == [[SURE], [UNSURE]]
