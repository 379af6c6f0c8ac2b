"""The bins endpoint reads texts, submits each by itself, and answers all of them or none."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from pliant.bins.artifact import Shape
from pliant.serving.bins.endpoint import AT_ONCE, BinsEndpoint, Handler, TextRequest
from pliant.serving.bins.metric_list import ORIGINS
from pliant.serving.bins.settings import BinsSettings
from pliant.serving.driver import Completed, Rejected
from pliant.serving.http.api_errors import ApiError
from pliant.serving.lifecycle.catalog import Held
from pliant.serving.loop.observe import DriftCounter
from pliant.serving.metrics import Metrics


class Reader:
    """A token a word. Texts of more than four are truncated."""

    vocabulary = 80

    def __init__(self) -> None:
        self.reads: list[tuple] = []

    def read(self, first, second, left):
        self.reads.append((first, second, left))
        words = (first + " " + (second or "")).split()
        return SimpleNamespace(ids=np.arange(len(words[:4])), types=np.zeros(4), truncated=len(words) > 4)


class Driver:
    """Answers by the first word of a text: "full" and "late" are rejected."""

    def __init__(self, reader: Reader) -> None:
        self.reader, self.submitted, self.cancelled = reader, [], 0
        self.hold: asyncio.Event | None = None
        self.on_submit = lambda: None

    async def submit(self, task, left, utility, payload, length, client):
        self.on_submit()
        number = len(self.submitted)
        first = self.reader.reads[number][0]
        self.submitted.append((task, left, utility, payload, length, client))
        if self.hold is not None:
            try:
                await self.hold.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        word = first.split()[0]
        if word in ("full", "late"):
            return Rejected(word)
        return Completed(f"output {number}", number % 2, 1, 0.1 * number, 0.2 * number, late_by=-1.0)


def handler(reader, head="embedding", version=3):
    artifact = SimpleNamespace(head=head, classes=() if head == "embedding" else ("x", "y"))
    encoder = Held(artifact, 7, "e", Path("none"))
    shapes = [Shape(8, 1), Shape(8, 4, dynamic=True)]
    bins = SimpleNamespace(slo=5.0, shapes=shapes, seconds=(0.01,))
    return Handler(
        SimpleNamespace(encoder=encoder, bins=bins, version=version, max_length=4), reader, ["8x1", "dynamic"]
    )


class Service:
    def __init__(self, **streams: str) -> None:
        self.reader = Reader()
        self.driver = Driver(self.reader)
        self.counted = CollectorRegistry()
        handlers = {name: handler(self.reader, head) for name, head in (streams or {"mails": "embedding"}).items()}
        present = SimpleNamespace(handlers=handlers, driver=self.driver)
        self.generations = SimpleNamespace(present=present, chosen=present)
        refresher = SimpleNamespace(
            poller=None, generations=self.generations, trials=None, watcher=None, drift=DriftCounter()
        )
        metrics = Metrics("bin", ORIGINS, self.counted)
        self.endpoint = BinsEndpoint(BinsSettings(), refresher, metrics, lambda: 12.0)

    def run(self, *texts, **fields):
        request = TextRequest("mails", tuple(t if isinstance(t, tuple) else (t, None) for t in texts), **fields)
        return asyncio.run(self.endpoint.run(request, 11.5))

    def value(self, name, **labels):
        return self.counted.get_sample_value(name, labels)


@pytest.mark.parametrize(("reason", "status"), [("full", 429), ("late", 503)])
def test_one_text_without_an_output_fails_the_request_and_those_before_it_are_counted(reason, status):
    service = Service()
    with pytest.raises(ApiError) as refused:
        service.run("a text", f"{reason} text", "another")
    with pytest.raises(ApiError) as first:
        Service().run(f"{reason} text", "full text", "late text")
    assert first.value.code == reason
    assert (refused.value.status, refused.value.code) == (status, reason)
    if reason == "late":
        assert "deadline is 5 seconds" in str(refused.value)
    assert service.value("pliant_outcomes_total", task="mails", outcome="on_time") == 1
    assert service.value("pliant_outcomes_total", task="mails", outcome=f"dropped_{reason}") == 1


def test_a_client_that_leaves_takes_all_of_its_texts_along():
    service = Service()

    async def main():
        service.driver.hold = asyncio.Event()
        request = TextRequest("mails", (("a", None), ("b", None), ("c", None)))
        asking = asyncio.create_task(service.endpoint.run(request, 12.0))
        while len(service.driver.submitted) < 3:
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await asyncio.sleep(0)
        assert service.driver.cancelled == 3

    asyncio.run(main())


def test_texts_that_another_generation_would_read_are_read_again_by_it():
    """The next generation takes over while half of the texts are submitted; the first half is taken back."""
    service = Service()

    async def main():
        service.driver.hold = asyncio.Event()
        count = 17
        request = TextRequest("mails", (("a", None),) * count)
        reader = Reader()
        second = Driver(reader)
        following = SimpleNamespace(handlers={"mails": handler(reader, version=4)}, driver=second)
        service.driver.on_submit = lambda: setattr(service.generations, "chosen", following)
        async with asyncio.timeout(10):
            answer = await service.endpoint.run(request, 12.0)
        assert len(answer.outputs) == count and len(second.submitted) == count
        assert len(service.driver.submitted) == service.driver.cancelled == 1

    asyncio.run(main())


def test_others_have_a_turn_between_the_texts_of_a_large_request():
    service, turns = Service(), []

    async def main():
        async def other():
            while True:
                turns.append(len(service.reader.reads))
                await asyncio.sleep(0)

        beside = asyncio.create_task(other())
        text = "x" * (AT_ONCE // 2 + 1)
        await service.endpoint.run(TextRequest("mails", ((text, text), ("a", None), ("b", None))), 12.0)
        beside.cancel()

    asyncio.run(main())
    assert 1 in turns and 2 not in turns  # after the large one, and not between the small ones


def test_a_request_names_its_stream_unless_only_one_is_served_or_has_the_head():
    both = Service(mails="embedding", kinds="classification")
    select = both.endpoint.select
    assert select("kinds", "task", None) == select("kinds", "task", "classification") == "kinds"
    assert (select(None, "task", "embedding"), select(None, "task", "classification")) == ("mails", "kinds")
    with pytest.raises(Exception, match="several are served: mails, kinds"):
        select(None, "model", None)
    for name, head, sentence in (("kinds", "embedding", "not an embedding"), ("mails", "classification", "classifier")):
        with pytest.raises(ApiError, match=sentence) as refused:
            select(name, "task", head)
        assert (refused.value.status, refused.value.code) == (424, "wrong_head")
    single = Service(mails="embedding")
    assert single.endpoint.select(None, "task", None) == "mails"
    with pytest.raises(ApiError) as refused:
        single.endpoint.select(None, "task", "classification")
    assert refused.value.status == 424
    assert both.endpoint.tasks() == ["mails", "kinds"]
    assert both.endpoint.served("kinds").encoder.artifact.head == "classification"
