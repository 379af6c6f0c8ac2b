"""The most log-probabilities that a request can ask for, 20 requests at once: `/livez` and others' outputs meanwhile."""

from __future__ import annotations

import time

import pytest

from pliant.serving.packing.bodies import MAX_LOGPROBS
from pliant.serving.packing.endpoint import MAX_PROMPT_LOGPROBS
from qa.attacks.test_17_grammars import BODY, request
from qa.grounds import served
from qa.targets import Targets, flooding, honest, memory, say
from tests.fixtures.packing.published import CONTEXT

AT_ONCE, CALM, SECONDS = 20, 10.0, 25.0
PROMPTS = MAX_PROMPT_LOGPROBS // ((MAX_LOGPROBS + 1) * (CONTEXT - 2))
LARGEST = {"prompt": [[5 + at] * (CONTEXT - 2) for at in range(PROMPTS)], "logprobs": MAX_LOGPROBS, "echo": True}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with served("packing", tmp_path_factory.mktemp("logprobs")) as service:
        yield service


def test_the_largest_answers(service):
    targets, alive = Targets("18 log-probabilities"), ("GET", "/livez", b"")
    with honest(service, alive, clients=1) as calm, honest(service, request(**BODY), clients=2) as plain:
        time.sleep(CALM)
    least = memory(service)
    largest = [request(**LARGEST, max_tokens=1)[2]]
    with flooding(service.url, largest, "/v1/completions", {}, SECONDS, AT_ONCE) as attacking:
        with honest(service, alive, clients=1) as livez, honest(service, request(**BODY), clients=2) as others:
            time.sleep(SECONDS)
        answers = attacking.result()
    say(f"answers to the attackers by status: {dict(answers)}; MB before and after: {least:.0f}, {memory(service):.0f}")
    say(
        f"/livez: p99 {1000 * calm.p99:.1f} ms alone, {1000 * livez.p99:.1f} ms in {len(livez.seconds)} during the attack"
    )
    worst = [1000 * max(one or 30.0 for one in each.seconds) for each in (calm, livez)]
    say(f"/livez, worst: {worst[0]:.1f} ms alone, {worst[1]:.1f} ms during the attack")
    say(f"others: p99 {plain.p99:.3f} s alone, {others.p99:.3f} s during the attack; {others.reasons[:2]}")
    targets.at_most("/livez, p99", 1000 * livez.p99, 50, " ms")
    targets.at_least("others' success", others.success, 0.99)
    targets.check()
