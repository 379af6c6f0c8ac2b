"""Targets under overload, live: the champion behind Pliant's service and behind `transformers serve`, in turns.

Both serve the same model on the same core, in the same precision, with the same memory for keys and values. The rival,
with continuous batching, runs at the best of its settings by the tokens a second of a burst. The targets are multiples of
what a chat alone takes with the rival. Chats arrive at 1.2 and 1.5 times what Pliant answers of a burst; a server is idle
while the other one is measured. The client counts what it sees: a chat is good if its first text comes within the one target
and the mean time of each further piece is within the other.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import numpy as np

from benchmarks.endpoint import serving
from benchmarks.packing.chats import live_packing
from benchmarks.packing.vllm.load import times
from benchmarks.results import Target
from flows import settings
from flows.packing.champions import fetch_generator, load_champions
from flows.release import open_registry
from flows.servers import HOST, free_port
from pliant.errors import WorkerError
from pliant.lines import open_log
from pliant.packing.artifact import Generator
from pliant.packing.scheduling.request import Memory
from pliant.progress import Progress, silent
from serving.packing.vllm import model_folder
from training.packing import corpus

Messages = Sequence[Mapping[str, str]]
OURS, RIVAL = "pliant", "transformers serve"
THREADS = 1
ROLES = ("user", "assistant")
MOST_CHARACTERS = 200  # of a question and its answer in a history, which the context must hold
BLOCK_TOKENS = 32
LOADS = (1.2, 1.5)
JOINED = "{% for message in messages %}{{ message.content }}\n{% endfor %}"
READY_SECONDS, STOP_SECONDS, CHAT_SECONDS = 120.0, 20.0, 300.0
HEADINGS = ("load", "server", "chats", "accepted", "good", "goodput /s", "first text ms p50, p90", "refused in ms, p99")


@dataclass(frozen=True, slots=True)
class LiveConfig:
    """`tokens`: the rival's settings of the most tokens of a batch. `ttft` and `tpot`: multiples of a chat alone.

    A load lasts several times the target of the first token, as a queue has to grow before it makes anything late. Each
    chat has a history of so many `turns`: the embedded generator is so small that the HTTP of a short chat, and the client
    on the same cores, take as long as the model does.
    """

    turns: int = 3
    burst: int = 512
    seconds: float = 10.0  # of each load
    alone: int = 9
    limit: int = 64  # tokens of an answer
    tokens: tuple[int, ...] = (64, 256)
    ttft: float = 50.0
    tpot: float = 12.0


QUICK = LiveConfig()
FULL = LiveConfig(seconds=60.0, tokens=(32, 64, 128, 256, 512))


@dataclass(frozen=True, slots=True)
class Seen:
    """What the client saw of one chat. Seconds from its planned arrival; NaN for what did not happen."""

    status: int
    first: float
    last: float
    tokens: int

    @property
    def pace(self) -> float:
        return (self.last - self.first) / max(self.tokens - 1, 1)

    def good(self, ttft: float, tpot: float) -> bool:
        return self.status == 200 and self.first <= ttft and self.pace <= tpot


@dataclass(frozen=True, slots=True)
class LiveRow:
    """One load at one server. Milliseconds of the first text are of the answered chats; NaN without any."""

    load: float
    server: str
    chats: int
    accepted: int
    good: int
    seconds: float
    first_ms: tuple[float, float]  # p50, p90
    refused_ms: float  # p99

    @property
    def goodput(self) -> float:
        return self.good / self.seconds

    def cells(self) -> Sequence[str]:
        first = ", ".join(f"{each:.0f}" for each in self.first_ms)
        counts = str(self.chats), str(self.accepted), str(self.good), f"{self.goodput:.2f}"
        return f"{self.load:g}x", self.server, *counts, first, f"{self.refused_ms:.1f}"


@dataclass(frozen=True, slots=True)
class LiveResult:
    """Rows of both servers. `ttft`, `tpot`: the targets in seconds; `rate`: what Pliant answers of a burst, chats/s."""

    rows: Sequence[LiveRow]
    ttft: float
    tpot: float
    rate: float
    tokens: int  # the rival's best setting

    def targets(self) -> list[Target]:
        ours = {row.load: row for row in self.rows if row.server == OURS}
        rival = {row.load: row for row in self.rows if row.server == RIVAL}
        last = ours[LOADS[-1]]
        ratios = [
            Target(f"live goodput at {load:g}x over {RIVAL}", ours[load].goodput / _some(rival[load]), ">=", 1.4, "x")
            for load in LOADS
        ]
        return [
            *ratios,
            Target(
                f"live: accepted chats that keep their targets at {LOADS[-1]:g}x", last.good / last.accepted, ">=", 0.99
            ),
            Target("live: refusals, p99", last.refused_ms, "<=", 20.0, "ms"),
        ]

    def plain(self) -> dict[str, Any]:
        figures = {"ttft": self.ttft, "tpot": self.tpot, "rate": self.rate, "batch tokens of the rival": self.tokens}
        return {**figures, "rows": [asdict(row) for row in self.rows]}


def missing() -> str:
    """Return why the rival cannot be run here; empty if it can."""
    if find_spec("accelerate"):
        return ""
    return "needs accelerate, which the extra bench has: without it `transformers serve` loads no model"


def measure(config: LiveConfig = QUICK, progress: Progress = silent) -> LiveResult:
    """Measure both servers. Raises `PliantError` where one fails."""
    packing, project = live_packing(), settings.read()
    registry = open_registry(project, "packing")
    champion = load_champions(registry)[packing.name]
    folder = project.home / "bench" / "served"
    write(fetch_generator(registry, champion), folder)
    pool, steps = conversations(config.turns), len(config.tokens) + 2 + len(LOADS)
    best, burst = 0, 0.0
    for done, tokens in enumerate(config.tokens):
        with rival(folder, packing.memory, tokens, project.home) as url:
            rate = _answered(send(url, str(folder), pool[: config.burst], [0.0] * config.burst, config.limit))
        best, burst = (tokens, rate) if rate > burst else (best, burst)
        progress(done + 1, steps)
    with (
        serving("packing", threads=THREADS, any_profile=True) as ours,
        rival(folder, packing.memory, best, project.home) as other,
    ):
        alone = [send(other, str(folder), [pool[number]], [0.0], config.limit)[0] for number in range(config.alone)]
        ttft = config.ttft * median(each.first for each in alone)
        tpot = config.tpot * median(each.pace for each in alone)
        progress(len(config.tokens) + 1, steps)
        warm = send(ours, packing.name, pool[: config.burst], [0.0] * config.burst, config.limit)
        rate, rows = _answered(warm), []
        for number, load in enumerate(LOADS):
            count = round(load * rate * config.seconds)
            arrivals = times("Poisson", load * rate, count, number).tolist()
            chats = [pool[at % len(pool)] for at in range(count)]
            headers = {"x-slo-ttft-ms": f"{1000 * ttft:.3f}", "x-slo-tpot-ms": f"{1000 * tpot:.3f}"}
            for server, url, model in ((OURS, ours, packing.name), (RIVAL, other, str(folder))):
                began = time.perf_counter()
                seen = send(url, model, chats, arrivals, config.limit, headers)
                rows.append(row(load, server, seen, time.perf_counter() - began, ttft, tpot))
            progress(len(config.tokens) + 2 + number, steps)
    return LiveResult(rows, ttft, tpot, rate, best)


def conversations(turns: int, seed: int = 0) -> list[Messages]:
    """Return chats about held-out questions, each after so many others with their answers, in random order."""
    held_out = corpus.select(corpus.load(), "test")
    order = np.random.default_rng(seed).permutation(len(held_out)).tolist()
    chats: list[Messages] = []
    for first in range(0, len(order) - turns, turns + 1):
        *before, last = (held_out[index] for index in order[first : first + turns + 1])
        history = [(turn.ask, turn.answer) for turn in before if len(turn.ask) + len(turn.answer) < MOST_CHARACTERS]
        said = [{"role": role, "content": text} for pair in history for role, text in zip(ROLES, pair, strict=True)]
        chats.append([*said, {"role": "user", "content": last.ask}])
    return chats


def row(load: float, server: str, seen: Sequence[Seen], seconds: float, ttft: float, tpot: float) -> LiveRow:
    """Return what one load came to."""
    answered = [each for each in seen if each.status == 200]
    refused = [1000 * each.last for each in seen if each.status != 200]
    first = [1000 * each.first for each in answered]
    p50, p90 = np.quantile(first, (0.5, 0.9)).tolist() if first else (math.nan, math.nan)
    good = sum(each.good(ttft, tpot) for each in seen)
    slowest = float(np.quantile(refused, 0.99)) if refused else math.nan
    return LiveRow(load, server, len(seen), len(answered), good, seconds, (p50, p90), slowest)


def write(generator: Generator, folder: Path) -> None:
    """Write a generator as a folder that transformers serves."""
    model_folder.write(generator, folder)
    (folder / "chat_template.jinja").write_text(
        generator.chat_template or "{% for m in messages %}{{ m.content }}\n{% endfor %}"
    )


@contextmanager
def rival(folder: Path, memory: Memory, tokens: int, home: Path) -> Iterator[str]:
    """Give the address of `transformers serve` with so many tokens of a batch. Raises `WorkerError` if it does not start."""
    port = free_port()
    blocks = memory.pages * memory.page_tokens // BLOCK_TOKENS
    command = [
        *(
            str(Path(sys.executable).with_name("transformers")),
            "serve",
            str(folder),
            "--continuous-batching",
            "--device",
            "cpu",
            "--dtype",
            "float32",
        ),
        *("--host", HOST, "--port", str(port), "--cb-block-size", str(BLOCK_TOKENS), "--cb-num-blocks", str(blocks)),
        *("--cb-max-batch-tokens", str(tokens)),
    ]
    offline = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(THREADS), "TOKENIZERS_PARALLELISM": "false"}
    path = home / "logs" / f"transformers-{port}.log"
    with open_log(path) as log:
        process = subprocess.Popen(
            command, env={**os.environ, **offline}, stdout=log, stderr=log, start_new_session=True
        )
    try:
        url = f"http://{HOST}:{port}"
        _wait(process, url, path)
        yield url
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    for _ in range(int(2 * READY_SECONDS)):
        if process.poll() is not None:
            raise WorkerError(f"transformers serve ended with status {process.returncode}; its log is {log}")
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise WorkerError(f"transformers serve was not ready within {READY_SECONDS:g} s; its log is {log}")


def send(
    url: str,
    model: str,
    chats: Sequence[Messages],
    arrivals: Sequence[float],
    limit: int,
    headers: Mapping[str, str] | None = None,
) -> list[Seen]:
    """Send every chat at its time, streamed and greedy, and return what was seen of each, in their order."""
    return asyncio.run(_send_all(url, model, chats, arrivals, limit, headers or {}))


async def _send_all(
    url: str, model: str, chats: Sequence[Messages], arrivals: Sequence[float], limit: int, headers: Mapping[str, str]
) -> list[Seen]:
    timeout = aiohttp.ClientTimeout(total=CHAT_SECONDS)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=timeout, headers=headers
    ) as session:
        start, pending = time.perf_counter() + 0.1, []
        for chat, arrival in zip(chats, arrivals, strict=True):
            await asyncio.sleep(max(start + arrival - time.perf_counter(), 0.0))
            fields = {"model": model, "messages": chat, "max_tokens": limit}
            body = {**fields, "temperature": 0.0, "stream": True, "stream_options": {"include_usage": True}}
            pending.append(asyncio.create_task(_stream(session, url, body, start + arrival)))
        return list(await asyncio.gather(*pending))


async def _stream(session: aiohttp.ClientSession, url: str, body: Mapping[str, Any], planned: float) -> Seen:
    first, last, tokens = math.nan, math.nan, 0
    try:
        async with session.post(f"{url}/v1/chat/completions", json=body) as response:
            if response.status != 200:
                await response.read()
                return Seen(response.status, math.nan, time.perf_counter() - planned, 0)
            async for line in response.content:
                text = line.removeprefix(b"data:").strip()
                if not text or text == b"[DONE]":
                    continue
                event = json.loads(text)
                tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
                if any(choice.get("delta", {}).get("content") for choice in event.get("choices") or ()):
                    last = time.perf_counter() - planned
                    first = last if math.isnan(first) else first
    except (TimeoutError, aiohttp.ClientError):
        return Seen(0, first, last, tokens)
    return Seen(200, first, last, tokens)


def _answered(seen: Sequence[Seen]) -> float:
    """Return the chats a second of a burst. Raises `WorkerError` where one was not answered."""
    if any(each.status != 200 for each in seen):
        raise WorkerError(f"a burst was not answered whole: {sorted({each.status for each in seen})}")
    return len(seen) / max(each.last for each in seen)


def _some(row: LiveRow) -> float:
    """Return the goodput, or that of half a chat where none was good."""
    return max(row.good, 0.5) / row.seconds
