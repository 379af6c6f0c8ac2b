"""What the load over HTTP asks and counts, and what the demo recovers from a service's journal."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.load_generator import Reply
from benchmarks.packing_demo import load_figure, recovered, way_of
from benchmarks.packing_load import HEADINGS, TIMEOUT, Fared, LoadConfig, Question, arrivals, form
from benchmarks.packing_simulate import requests
from pliant.errors import RegistryError
from pliant.packing.policy import Rules
from pliant.packing.reference import capacity
from pliant.packing.simulated import simulate
from pliant.protocol import Request
from pliant.report import Observation
from tests.benchmarks.packing_worlds import CONTEXT, packing

ONE = packing()
RULES = Rules("default", CONTEXT)


def test_a_request_asks_its_own_question_with_its_own_seed():
    how, pool = form("tiny", 0.7), [Question("what?", 3), Question("why?", 4)]
    chosen = how.choose(Request(3, 0.0, 1.0, "tiny"), pool, np.random.default_rng(0))
    told = json.loads(how.body(Request(3, 0.0, 1.0, "tiny"), chosen))
    assert told["messages"] == [{"role": "user", "content": "why?"}] and told["seed"] == 4
    assert (told["model"], told["temperature"]) == ("tiny", 0.7) and how.path == "/v1/chat/completions"
    assert how.read({"usage": {"completion_tokens": 7}}, chosen).setting == 7


def test_arrivals_are_a_share_of_what_the_profile_bears():
    config = LoadConfig(seconds=200 / capacity(ONE), share=1.5)
    assert len(arrivals(ONE, config)) == pytest.approx(300, rel=0.2)


def _reply(arrival: float, answered: float | None, tokens: int | None = None) -> Reply:
    seen = Observation(Request(0, arrival, 9.0, "tiny"), answered, setting=tokens, dropped=None if answered else "503")
    return Reply(seen, 200 if answered else 503, 0.0, float("nan"))


def test_who_has_no_answer_counts_with_the_time_that_was_waited():
    found = Fared("s3", [_reply(1.0, 2.0, 10), _reply(2.0, 5.0, 40), _reply(3.0, None)], 2, 0)
    assert found.took.tolist() == [1.0, 3.0, TIMEOUT] and (found.answered, found.tokens) == (2, 50)
    assert dict(zip(HEADINGS, found.row(), strict=True))["tokens/s"] == "10"


def _journal(prompts):
    entries = []
    lengths = {one.id: one.exact for one in prompts}
    run = simulate(
        prompts, lengths, RULES, ONE.memory, ONE.steps, leaps=False, observe=lambda *told: entries.append(told[:3])
    )
    return entries, run


def test_prompts_and_lengths_are_recovered_from_what_a_scheduler_was_told():
    prompts = requests("poisson:60:2", ONE, CONTEXT, 0).prompts
    entries, run = _journal(prompts)
    found = recovered(entries, RULES, ONE)
    assert way_of(run).preemptions > 0 and len(found) > 50
    last = {fate.id for fate in run.fates} - {one.id for one in found}
    assert len(last) <= 1  # the end of the very last is told in no further round
    assert found == [one for one in prompts if one.id not in last]


def test_a_journal_of_other_rules_is_refused():
    entries, _ = _journal(requests("poisson:60:2", ONE, CONTEXT, 0).prompts)
    with pytest.raises(RegistryError, match="not that of the champion"):
        recovered(entries, replace(RULES, policy="orca"), ONE)


def test_the_picture_has_a_line_for_every_way():
    _, run = _journal(requests("poisson:60:1", ONE, CONTEXT, 0).prompts)
    (axes,) = load_figure({"live": way_of(run), "simulated": way_of(run)}).axes
    assert [line.get_label() for line in axes.lines] == ["live", "simulated"]
