"""What the tests of every system's real service need: its start and its end, its processes, several questions at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from serving.launch import Service, launch
from serving.settings import Settings
from tests.serving.clients import PATIENCE, free_port


@contextmanager
def running(settings: Settings, folder: Path) -> Iterator[Service]:
    service = launch(settings, folder / "state", free_port(), folder / "serve.log")
    try:
        service.wait_until_ready(PATIENCE)
        yield service
    finally:
        service.stop(PATIENCE)


def processes(service: Service, word: str = "device_process") -> list[psutil.Process]:
    """Of devices, or what else runs the file that `word` names; the eldest first."""
    family = psutil.Process(service.process.pid).children(recursive=True)
    found = [process for process in family if any(word in argument for argument in process.cmdline())]
    return sorted(found, key=lambda process: process.create_time())


class Asked:
    """`count` questions, each in a thread of its own."""

    def __init__(self, ask: Callable[[int], Any], count: int) -> None:
        self._ask = ask
        self._answers: list[Any] = [None] * count
        self._threads = [threading.Thread(target=self._one, args=(place,)) for place in range(count)]
        for thread in self._threads:
            thread.start()

    def _one(self, place: int) -> None:
        self._answers[place] = self._ask(place)

    def so_far(self) -> list[Any]:
        return [answer for answer in self._answers if answer is not None]

    def answers(self) -> list[Any]:
        for thread in self._threads:
            thread.join(PATIENCE)
        return self._answers


def go_on(held: Sequence[psutil.Process]) -> None:
    """Processes that were held still; one that was replaced for that is gone."""
    for process in held:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGCONT)


def end_in_flight(service: Service, held: Sequence[psutil.Process], asked: Asked) -> list[Any]:
    """SIGTERM while processes are held still, so that nothing ends too early; the answers that came nevertheless."""
    os.kill(service.process.pid, signal.SIGTERM)
    time.sleep(0.5)  # for the signal to reach the whole family
    go_on(held)
    answers = asked.answers()
    assert service.process.wait(PATIENCE) == 0
    assert not any(process.is_running() for process in held)
    return answers
