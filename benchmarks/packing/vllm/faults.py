"""Faults of vLLM under the service of packing: many streamed chats, in which the engine's process is struck.

First all chats run undisturbed; then the same ones while the engine is killed, held still until the service takes it for
hung, or left without memory. Whatever happens, each chat is to end, with the text that it had undisturbed.
"""

from __future__ import annotations

import asyncio
import json
import math
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import aiohttp
import psutil

from benchmarks.endpoint import serving
from benchmarks.places import ALPACA, missing
from benchmarks.results import Target
from flows import settings
from pliant.errors import PliantError
from pliant.progress import Progress, silent
from serving.packing.vllm import engine
from training.packing import prompts

HEADINGS = ("fault", "chats", "lost", "differing", "seconds", "engine's processes")
CHANNEL = "child_process"  # of a command line that starts an engine's process


@dataclass(frozen=True, slots=True)
class FaultsConfig:
    """`after`: share of the undisturbed seconds, after which the engine is struck.

    `launch_limit`: seconds without a sign of life after which the service takes an engine for hung.
    """

    chats: int = 500
    tokens: int = 32
    after: float = 0.3
    launch_limit: float = 20.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client read of one chat. `how`: empty where it ended as it should."""

    text: str
    how: str = ""


@dataclass(frozen=True, slots=True)
class Struck:
    """What came of all chats under one fault. `processes`: that ran the engine, one after the other."""

    fault: str
    chats: int
    lost: int
    differing: int
    seconds: float
    processes: int
    example: str = ""

    def row(self) -> tuple[str, ...]:
        counts = (str(self.chats), str(self.lost), str(self.differing))
        return self.fault, *counts, f"{self.seconds:.1f}", str(self.processes)


@dataclass(frozen=True, slots=True)
class FaultsResult:
    struck: tuple[Struck, ...]

    def targets(self) -> list[Target]:
        targets = []
        for each in self.struck[1:]:
            hit = each.processes > 1  # else nothing has been measured
            number = float(each.lost + each.differing) if hit else math.nan
            targets.append(
                Target(f"texts lost or doubled of {each.chats} streams, engine {each.fault}", number, "<=", 0)
            )
        return targets

    def plain(self) -> dict[str, Any]:
        return {"struck": [asdict(each) for each in self.struck]}


def lacking() -> str:
    """Return what is missing to measure this; empty if nothing is."""
    return missing(ALPACA) or engine.missing(settings.read().home)


def kill(process: psutil.Process) -> None:
    process.kill()


def hold(process: psutil.Process) -> None:
    process.suspend()


def starve(process: psutil.Process) -> None:
    """Let the process have no more memory than it has now: its next larger allocation fails."""
    now = process.memory_info().vms
    process.rlimit(resource.RLIMIT_AS, (now, now))


FAULTS: Mapping[str, Callable[[psutil.Process], None]] = {"killed": kill, "frozen": hold, "out of memory": starve}


def measure(name: str, progress: Progress = silent, config: FaultsConfig = FaultsConfig()) -> FaultsResult:
    """Serve the champion `name` by vLLM. Raises `PliantError` where a service fails, or a fault finds no engine."""
    texts = list(dict.fromkeys(prompts.load(f"parquet:{ALPACA}")[1]))[: config.chats]
    options: dict[str, Any] = {"any_profile": True, "launch_limit": config.launch_limit, "refresh_seconds": 0.0}
    with serving("packing", engine="vllm", **options) as url:
        progress(1, len(FAULTS) + 2)
        asyncio.run(_ask_all(url, name, texts[:8], config.tokens))
        plain, seconds = asyncio.run(_ask_all(url, name, texts, config.tokens))
        struck = [_struck("undisturbed", plain, plain, seconds, _engines())]
        for number, (fault, strike) in enumerate(FAULTS.items()):
            progress(number + 2, len(FAULTS) + 2)
            before = _engines()
            if not before:
                raise PliantError("the service has no process of an engine that a fault could strike")
            then = config.after * seconds, partial(strike, before[-1])
            answers, lasted = asyncio.run(_ask_all(url, name, texts, config.tokens, *then))
            _wait_for_engine(url, name)
            struck.append(_struck(fault, answers, plain, lasted, [*before, *_others(before)]))
    return FaultsResult(tuple(struck))


def _struck(
    fault: str, answers: Sequence[Answer], plain: Sequence[Answer], seconds: float, processes: Sequence[Any]
) -> Struck:
    lost = [answer.how for answer in answers if answer.how]
    differing = sum(not a.how and a.text != b.text for a, b in zip(answers, plain, strict=True))
    return Struck(fault, len(answers), len(lost), differing, seconds, len(processes), lost[0] if lost else "")


def _engines() -> list[psutil.Process]:
    """Return the processes that run an engine in vLLM's environment, the eldest first."""
    python = str(engine.python_of(settings.read().home))
    family = [process for process in psutil.Process().children(recursive=True) if _runs(process, python)]
    return sorted(family, key=lambda process: process.create_time())


def _others(before: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Return the engine's processes that were not there before."""
    return [process for process in _engines() if process not in before]


def _runs(process: psutil.Process, python: str) -> bool:
    with suppress(psutil.Error):
        words = process.cmdline()
        return words[:1] == [python] and any(CHANNEL in word for word in words[:4])
    return False


def _wait_for_engine(url: str, name: str, seconds: float = 120.0) -> None:
    """Wait until a short chat is answered."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        (answer,), _ = asyncio.run(_ask_all(url, name, ["Hello"], 2))
        if not answer.how:
            return
        time.sleep(1.0)


async def _ask_all(
    url: str, name: str, texts: Sequence[str], tokens: int, after: float = 0.0, strike: Callable[[], None] | None = None
) -> tuple[list[Answer], float]:
    """Stream all chats at once; `strike` after so many seconds. Returns the answers, and the seconds until the last."""
    timeout = aiohttp.ClientTimeout(total=600.0)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        start = time.monotonic()
        pending = [asyncio.create_task(_ask(session, url, name, text, tokens)) for text in texts]
        if strike is not None:
            await asyncio.sleep(after)
            strike()
        answers = await asyncio.gather(*pending)
        return answers, time.monotonic() - start


async def _ask(session: aiohttp.ClientSession, url: str, name: str, text: str, tokens: int) -> Answer:
    fields = {"model": name, "messages": [{"role": "user", "content": text}], "max_tokens": tokens}
    read, ended = list[str](), False
    try:
        async with session.post(
            f"{url}/v1/chat/completions", json=fields | {"temperature": 0, "stream": True}
        ) as response:
            if response.status != 200:
                return Answer("", f"{response.status}: {(await response.text())[:200]}")
            async for line in response.content:
                data = line.removeprefix(b"data:").strip()
                if not data or data == b"[DONE]":
                    ended = ended or bool(data)
                    continue
                message = json.loads(data)
                if "error" in message:
                    return Answer("".join(read), str(message["error"])[:200])
                read += [choice["delta"].get("content") or "" for choice in message["choices"]]
    except (aiohttp.ClientError, TimeoutError) as error:
        return Answer("".join(read), f"{type(error).__name__}: {error}")
    return Answer("".join(read), "" if ended else "the stream ended early")
