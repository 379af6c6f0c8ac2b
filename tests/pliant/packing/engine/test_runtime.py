"""The engine on a real model: its texts do not depend on policies and preemptions; how it ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pliant.errors import InputError, WorkerError
from pliant.packing.engine.complete import complete
from pliant.packing.engine.submission import Sampling, Submission
from pliant.packing.scheduling.policy import POLICIES, Rules
from pliant.packing.scheduling.request import Memory
from pliant.packing.scheduling.scheduler import PackingScheduler
from tests.fixtures.packing.generators import (
    CONTEXT,
    ENDS,
    HOSTED,
    LIMIT,
    SCARCE,
    VOCABULARY,
    generated,
    prompts,
    running,
    submission,
    tiny_generator,
)

COUNT = 14
FULL = Rules("paged", CONTEXT)
SAMPLED = Sampling(temperature=0.9, top_p=0.95, top_k=40)


def rules_of(policy: str) -> Rules:
    """Return rules with so little safety that `default` must preempt."""
    return Rules(policy, CONTEXT, safety=-2.0, recalibrate=False)


@pytest.fixture(scope="module")
def expected() -> list[tuple[int, ...]]:
    outputs = generated(tiny_generator(), prompts(COUNT))
    ends = [text[-1] in ENDS for text in outputs]
    assert any(ends), "some texts end by themselves"
    assert not all(ends), "some go on to the limit"
    return outputs


@pytest.mark.parametrize("memory", [SCARCE, HOSTED], ids=["discarding", "offloading"])
@pytest.mark.parametrize("policy", POLICIES)
def test_greedy_texts_are_those_of_plain_generate(policy: str, memory: Memory, expected: list[tuple[int, ...]]) -> None:
    with running(memory, rules_of(policy)) as (engine, desk):
        for id, ids in enumerate(prompts(COUNT)):
            engine.submit(submission(id, ids, exact=len(expected[id])))
        while sum(map(desk.ended, range(COUNT))) < COUNT:
            engine.check()
            assert not engine.status().error
        assert desk.texts() == expected
        assert [desk.last[id].finished for id in range(COUNT)] == [
            "stop" if text[-1] in ENDS else "length" for text in expected
        ]
        engine.check()
        status = engine.status()
        assert (status.running, status.waiting, status.host_pages_used) == (0, 0, 0)
        assert engine.status().pages_used == 0
        if policy in ("default", "paged", "s3"):
            assert status.preemptions == desk.preemptions() > 0
        if memory is SCARCE and policy in ("default", "paged", "s3"):
            assert status.recomputed > 0
        if memory is HOSTED and policy in ("paged", "s3"):
            assert status.recomputed == 0, "all that was preempted fitted on the host"


def test_a_seeded_text_is_the_same_alone_in_company_and_under_preemption() -> None:
    texts, outputs = prompts(COUNT), {}
    for name, memory in (("scarce", SCARCE), ("hosted", HOSTED), ("ample", replace(SCARCE, pages=400))):
        with running(memory, FULL) as (engine, desk):
            for id, ids in enumerate(texts):
                engine.submit(submission(id, ids, sampling=replace(SAMPLED, seed=id)))
            desk.wait(COUNT)
            outputs[name] = desk.texts()
            assert (desk.preemptions() > 0) == (name != "ample")
    alone = []
    with running(SCARCE, FULL) as (engine, desk):
        for id, ids in enumerate(texts):
            engine.submit(submission(id, ids, sampling=replace(SAMPLED, seed=id)))
            desk.wait(id + 1)
        alone = desk.texts()
    assert outputs["scarce"] == outputs["hosted"] == outputs["ample"] == alone
    assert alone != generated(tiny_generator(), texts)


@pytest.mark.parametrize("sampling", [Sampling(), replace(SAMPLED, seed=5)], ids=["greedy", "seeded"])
def test_after_a_crash_a_text_goes_on_as_it_would_have(sampling: Sampling) -> None:
    ids = prompts(1, seed=3)[0]
    with running(SCARCE, FULL) as (engine, desk):
        engine.submit(submission(0, ids, sampling=sampling, force=LIMIT))
        desk.wait(1)
        whole = desk.texts()[0]
        prompt = submission(1, ids).prompt
        engine.submit(Submission(prompt, ids + whole[:15], sampling, generated=15, force=LIMIT))
        desk.wait(2)
        assert whole[:15] + tuple(desk.tokens[1]) == whole
        assert desk.last[1].generated == LIMIT


@pytest.mark.parametrize("policy", ["paged", "s3"])
def test_a_cancelled_text_frees_its_pages_and_harms_no_other(policy: str, expected: list[tuple[int, ...]]) -> None:
    with running(HOSTED, rules_of(policy)) as (engine, desk):
        for id, ids in enumerate(prompts(COUNT)):
            engine.submit(submission(id, ids, exact=len(expected[id])))
        long = [id for id in range(COUNT) if len(expected[id]) == LIMIT]
        desk.wait_tokens(long[0], 3)
        for id in long[:4]:  # some run, some were preempted, some wait
            engine.cancel(id)
        engine.check()
        desk.wait(COUNT)
        gone = [id for id in range(COUNT) if desk.last[id].finished == "cancelled"]
        assert long[0] in gone
        assert set(gone) <= set(long[:4])
        assert [desk.texts()[id] for id in range(COUNT) if id not in gone] == [
            expected[id] for id in range(COUNT) if id not in gone
        ]
        engine.check()
        assert engine.status().pages_used == engine.status().host_pages_used == 0


def test_when_the_loop_dies_everybody_is_told() -> None:
    calls = []

    def broken(*entry: object) -> None:
        calls.append(entry)
        if len(calls) == 5:
            raise RuntimeError("no memory left on the device")

    with running(SCARCE, FULL, journal=broken) as (engine, desk):
        for id, ids in enumerate(prompts(COUNT)):
            try:
                engine.submit(submission(id, ids, force=LIMIT))
            except WorkerError:  # it died before all were submitted
                break
        else:
            id = COUNT
        desk.wait(id)
        assert {progress.finished for progress in desk.last.values()} == {"failed"}
        engine.check()
        status = engine.status()
        assert not status.alive or status.error
        assert status.error == "RuntimeError: no memory left on the device"
        with pytest.raises(WorkerError, match="no memory left"):
            engine.submit(submission(99, prompts(1)[0]))


def test_what_can_never_run_is_refused_at_once() -> None:
    ids = prompts(1)[0]
    with running(replace(SCARCE, pages=8), Rules("oracle", CONTEXT), sampling=False) as (engine, desk):
        with pytest.raises(InputError, match="what the cache holds, 32"):
            engine.submit(submission(0, ids, limit=33 - len(ids), exact=1))
        with pytest.raises(InputError, match="context"):
            engine.submit(submission(0, ids, limit=CONTEXT, exact=1))
        with pytest.raises(InputError, match="oracle"):
            engine.submit(submission(0, ids, limit=5))
        with pytest.raises(InputError, match=f"ids is {VOCABULARY}"):
            engine.submit(submission(0, (1, VOCABULARY), limit=5, exact=5))
        with pytest.raises(InputError, match="greedy"):
            engine.submit(submission(0, ids, limit=5, exact=5, sampling=SAMPLED))
        engine.submit(submission(0, ids, limit=32 - len(ids), exact=5, force=32 - len(ids)))
        with pytest.raises(InputError, match="in flight"):
            engine.submit(submission(0, ids, limit=5, exact=5))
        desk.wait(1)
        assert desk.last[0].generated == 32 - len(ids)


@pytest.mark.parametrize("policy", ["default", "s3"])
def test_a_fresh_scheduler_decides_the_same_from_the_journal(policy: str) -> None:
    entries = []
    rules = Rules(policy, CONTEXT, safety=-2.0)
    with running(HOSTED, rules, journal=lambda *entry: entries.append(entry)) as (engine, desk):
        for id, ids in enumerate(prompts(COUNT)):
            engine.submit(submission(id, ids))
        desk.wait_tokens(0, 1)
        engine.cancel(3)
        desk.wait(COUNT)
        engine.check()
    scheduler = PackingScheduler(rules, HOSTED)
    assert [scheduler.handle(round, now) for now, round, _ in entries] == [plan for *_, plan in entries]
    assert any(plan.offloaded for *_, plan in entries)


def test_prompts_that_begin_alike_are_read_once_and_their_texts_stay_the_same() -> None:
    begin = prompts(1, seed=11)[0] + tuple(range(20, 40))
    texts = [(*begin, 3 + number) for number in range(6)]
    with running(replace(SCARCE, pages=60), Rules("default", CONTEXT)) as (engine, desk):
        for id, ids in enumerate(texts):
            engine.submit(submission(id, ids, exact=LIMIT))
        desk.wait(len(texts))
        engine.check()
        assert desk.texts() == generated(tiny_generator(), texts)
        alike = len(begin) // SCARCE.page_tokens * SCARCE.page_tokens
        assert engine.status().shared >= 4 * alike, "two were admitted before anything was read"
    with running(replace(SCARCE, pages=60), Rules("default", CONTEXT, share=False)) as (engine, desk):
        for id, ids in enumerate(texts):
            engine.submit(submission(id, ids, exact=LIMIT))
        desk.wait(len(texts))
        assert engine.status().shared == 0


@pytest.mark.parametrize("memory", [SCARCE, HOSTED])
def test_greedy_completions_are_those_of_plain_generation_however_little_memory_there_is(memory):
    texts = prompts(20)
    completions = complete(tiny_generator(), texts, memory, LIMIT)
    assert [completion.tokens for completion in completions] == generated(tiny_generator(), texts)
    for completion in completions:
        assert completion.finished == ("stop" if completion.tokens[-1] in ENDS else "length")
        assert completion.finished == "stop" or len(completion.tokens) == LIMIT


@pytest.mark.parametrize("ids", [(), (1,) * CONTEXT])
def test_a_prompt_that_leaves_no_token_is_refused_by_its_number(ids):
    with pytest.raises(InputError, match="prompt 1 is"):
        complete(tiny_generator(), [(1, 2), ids], HOSTED)
