"""Follows the service of `pliant demo --story`: its status twice a second, its events, and waits that have limits."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pliant.benchmarks.demo.story_load import Clients
from pliant.serving.events import Event, latest_events

LOOK_SECONDS = 0.5
T = TypeVar("T")


class MissedError(Exception):
    """A step of the story did not come within its limit, or came out otherwise; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Mark:
    """An event: a short name, and a sentence."""

    at: float
    name: str
    sentence: str


class Follower:
    """What was seen of one service: its `status` while `running`, and `marks` by whoever tells the story."""

    def __init__(self, home: Path, system: str, show: Callable[[str], None]) -> None:
        """`home`: the service's PLIANT_HOME; `show` prints a line."""
        self.marks: list[Mark] = []
        self.status: Mapping[str, Any] = {}
        self._began, self.start = datetime.now(UTC), time.monotonic()
        self._home, self._system, self._show = home, system, show
        self._ended = threading.Event()

    def now(self) -> float:
        """Return the seconds since the story began."""
        return time.monotonic() - self.start

    def mark(self, name: str, sentence: str, at: float | None = None) -> float:
        """Note and print an event, of now or of a second of the story; return its second."""
        at = self.now() if at is None else at
        self.marks.append(Mark(at, name, sentence))
        self._show(f"{at:6.1f} s  {sentence}")
        return at

    def events(self, name: str, since: float = 0.0) -> list[tuple[float, Event]]:
        """Return the events of this name that the system has told of since a second, each with its second."""
        known = [(datetime.fromisoformat(each.occurred) - self._began, each) for each in latest_events(self._home)]
        mine = [(at.total_seconds(), each) for at, each in known if (each.name, each.system) == (name, self._system)]
        return [(at, each) for at, each in mine if at >= since]

    def wait(self, what: str, seconds: float, ready: Callable[[], T | None], clients: Clients | None = None) -> T:
        """Return the first value of `ready` that is not None. Raises `MissedError` after `seconds`."""
        until = time.monotonic() + seconds
        while (value := ready()) is None:
            if time.monotonic() > until:
                raise MissedError(f"{what} did not come within {seconds:.0f} s")
            if clients is not None:
                clients.check()
            time.sleep(0.1)
        return value

    @contextmanager
    def running(self, address: str) -> Iterator[Follower]:
        """Look at the status while the context lasts. An answer that does not come is passed over."""
        thread = threading.Thread(target=self._look, args=(address,), name="follower of the story", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            thread.join(10)

    def _look(self, address: str) -> None:
        """Note each stage and share of a trial when it is first seen. What ends the trial is an event of the service."""
        shown = ""
        while not self._ended.wait(LOOK_SECONDS):
            try:
                with urllib.request.urlopen(address, timeout=5) as response:
                    self.status = json.load(response)
            except (OSError, ValueError):
                continue
            trial = self.status.get("trial") or {}
            number, stage, share = trial.get("release"), str(trial.get("stage", "")), float(trial.get("share", 0.0))
            words = {"shadow": "shadow", "canary": f"canary {100 * share:g}%"}.get(stage, "")
            if words == "shadow" != shown:
                self.mark(words, f"release {number} is in shadow: it gets copies of requests, and answers nobody")
            elif words and words != shown:
                anew = ", once its models have started anew" if shown == "shadow" else ""
                self.mark(words, f"release {number} is a canary: it gets {100 * share:g}% of the requests{anew}")
            shown = words
