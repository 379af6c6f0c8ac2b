"""Which of our files one warm request enters: `python -m qa.trace [SYSTEM...]` prints them for each system.

A service runs in this process as its own does, with what watches its answers, over models that run here. Files are counted
from the app on: not the door, access and what hosts a service in BentoML, nor what a device process runs.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
from prometheus_client import CollectorRegistry

from pliant import systems
from pliant.fallbacks import Fallback
from tests.fixtures.bins import published as bins
from tests.fixtures.cascade import published as cascade
from tests.fixtures.packing import in_process as packing
from tests.fixtures.packing.fakes import FakePredictor, FakeWorker
from tests.fixtures.places import ROOT
from tests.fixtures.registry import FolderRegistry
from tests.fixtures.tokens import http as tokens
from tests.fixtures.tokens import samples

PRODUCT = ("pliant", "systems", "loop")
NOT_COUNTED = tuple(f"pliant/serving/{part}/" for part in ("http/door", "http/access", "bento"))
MOST: Mapping[str, int] = {"tokens": 18, "bins": 17, "cascade": 19, "packing": 20}
"""Files that a system's request may enter: as many as it did when this was last lowered. The aim is 20."""
WARM = 5  # requests before the one that is traced


@dataclass(frozen=True, slots=True)
class Subject:
    """A system's request: what is published before it, its path, and its body."""

    publish: Callable[[FolderRegistry], object]
    path: str
    body: Mapping[str, Any]


def _publish_tokens(registry: FolderRegistry) -> None:
    digest = registry.publish("pliant-tokens-backbone", samples.tiny_backbone())
    registry.publish("pliant-tokens-profile", samples.tiny_profile(digest, "a device"))
    registry.publish("pliant-tokens-task-digits", samples.tiny_task("digits", ["zero", "one", "two"], digest))


SUBJECTS: Mapping[str, Subject] = {
    "tokens": Subject(_publish_tokens, "/predict", tokens.image_body()),
    "bins": Subject(lambda registry: bins.publish_tiny(registry, "colours"), "/predict", {"inputs": bins.TEXT}),
    "cascade": Subject(
        cascade.publish_tiny, "/predict", {"task": "colours", "texts": [cascade.UNSURE], "deadline": 10.0}
    ),
    "packing": Subject(
        packing.publish,
        "/chat/completions",
        {"model": "tales", "messages": [{"role": "user", "content": "Tell me"}], "temperature": 0, "max_tokens": 8},
    ),
}


class Device:
    """A worker whose model runs in this process."""

    fallbacks: Sequence[Fallback] = ()

    def __init__(self, build: Callable[[], Any]) -> None:
        self.build = build
        self.on_end: Callable[[], None] | None = None
        self.on_fallback: Callable[[Fallback], None] = lambda _: None

    async def start(self) -> None:
        self.model = self.build()

    async def run(self, setting: int, payloads: Sequence[Any]) -> Any:
        return self.model.run(setting, payloads)

    async def stop(self) -> None:
        del self.model


class Recorder:
    """Counts the calls into each file of the product while `on`, in this thread and in those that it starts."""

    def __init__(self) -> None:
        self.on, self.calls = False, Counter[str]()

    def __enter__(self) -> Recorder:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_error: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        name = frame.f_code.co_filename
        path = name.removeprefix(f"{ROOT}/")
        counted = path != name and path.partition("/")[0] in PRODUCT and not path.startswith(NOT_COUNTED)
        if not (self.on and event == "call" and counted):
            return
        caller: FrameType | None = frame
        while caller is not None and caller.f_code is not Device.run.__code__:
            caller = caller.f_back
        if caller is None:  # what runs on a device is not counted
            self.calls[path] += 1


async def trace(system: str, folder: Path) -> Counter[str]:
    """Return how often a warm request enters each file. Registry and state lie in `folder`."""
    subject, stage = SUBJECTS[system], systems.system(system)
    registry = FolderRegistry(folder)
    subject.publish(registry)
    settings = stage.part("serving", "settings").SETTINGS().replace(threads=1, any_profile=True, home=folder)
    served = stage.part("serving", "assembly").SERVED
    predictors = (lambda _build: FakePredictor(packing.predict),) if system == "packing" else ()
    worker = FakeWorker if system == "packing" else Device
    app = stage.part("serving", "api").create_app(folder)
    assembly = await served(settings, *predictors).assemble(registry, worker, CollectorRegistry())
    app.state.endpoint = assembly.endpoint
    with Recorder() as recorder:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            for number in range(WARM + 1):
                recorder.on = number == WARM
                answer = await client.post(subject.path, json=subject.body)
                answer.raise_for_status()
            recorder.on = False
    await assembly.stop()
    return recorder.calls


def main(names: Sequence[str]) -> int:
    """Print the files that each system's request enters; return 1 if there are more than there may be."""
    counts = {}
    for system in names or systems.names():
        with tempfile.TemporaryDirectory(prefix="pliant-trace-") as folder:
            calls = asyncio.run(trace(system, Path(folder)))
        counts[system] = len(calls)
        print(f"{system}: {len(calls)} files")
        print("".join(f"  {count:5}  {path}\n" for path, count in sorted(calls.items())))
    print(", ".join(f"{system} {count} (at most {MOST[system]})" for system, count in counts.items()))
    return int(any(count > MOST[system] for system, count in counts.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
