"""The most log-probabilities that a request can ask for, 20 requests at once: `/livez` and others' outputs meanwhile."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from qa.attacks.test_17_grammars import BODY, request, status_of
from qa.targets import Targets, elsewhere, honest, memory, say
from serving.packing.bodies import MAX_LOGPROBS
from serving.packing.endpoint import MAX_PROMPT_LOGPROBS
from tests.fixtures.live import running
from tests.fixtures.packing.published import CONTEXT, MlflowPublisher, publish_tiny, settings_for

AT_ONCE, CALM, SECONDS = 20, 10.0, 25.0
PROMPTS = MAX_PROMPT_LOGPROBS // ((MAX_LOGPROBS + 1) * (CONTEXT - 2))
LARGEST = {"prompt": [[5 + at] * (CONTEXT - 2) for at in range(PROMPTS)], "logprobs": MAX_LOGPROBS, "echo": True}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logprobs")
    publish_tiny(MlflowPublisher(folder))
    with running(settings_for(folder), folder) as service:
        yield service


def attack(url: str, until: float) -> Counter[int]:
    """Send the largest requests, 20 at once, until a time; return the answers by status. In a process of its own."""
    elsewhere()
    one = request(**LARGEST, max_tokens=1)

    def ask_on(_: int) -> list[int]:
        statuses = []
        while time.monotonic() < until:
            statuses.append(status_of(url, one, {}))
        return statuses

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return Counter(status for statuses in pool.map(ask_on, range(AT_ONCE)) for status in statuses)


def test_the_largest_answers(service):
    targets, alive = Targets("18 log-probabilities"), ("GET", "/livez", b"")
    with honest(service, alive, clients=1) as calm, honest(service, request(**BODY), clients=2) as plain:
        time.sleep(CALM)
    least = memory(service)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        pool.submit(attack, service.url, 0.0).result()  # it has imported everything
        attacking = pool.submit(attack, service.url, time.monotonic() + SECONDS)
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
