"""An open-loop load of streamed completions: prompts, arrivals, and what the client sees of each.

Every text ends where the model ends it, greedily, or at a limit that is the same for all: so everybody does the same work,
and no engine knows the lengths. Times count from the planned moment of sending.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import aiohttp
import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from pliant.benchmarks.packing.vllm.server import MODEL
from pliant.benchmarks.places import ALPACA, SHARED
from pliant.errors import WorkerError
from pliant.packing.chat import ChatTemplate
from pliant.training.packing import chat, prompts

DOLLY = SHARED / "text" / "dolly_train.parquet"
BURSTINESS = 0.25  # shape of the gamma distribution of bursty gaps; 1 is Poisson
SILENCE = 300.0  # seconds without a token after which a load counts as failed

Arrivals = Literal["at once", "Poisson", "bursty"]


@dataclass(frozen=True, slots=True)
class Chat:
    """A prompt: its tokens, and the text that a predictor reads."""

    ids: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of one request. Seconds from its planned arrival; NaN where it failed."""

    prompt: int  # tokens
    tokens: tuple[int, ...]
    first: float
    seconds: float
    arrival: float  # seconds from the start of the load

    @property
    def ended(self) -> float:
        return self.arrival + self.seconds


@dataclass(frozen=True, slots=True)
class Unloaded:
    """The seconds of a text that has the engine for itself: base + prompt * its prompt's tokens + token * its own."""

    base: float
    prompt: float
    token: float

    def seconds(self, replies: Sequence[Reply]) -> NDArray[np.float64]:
        """Return the seconds [N] that each would have taken alone."""
        prompts = np.array([reply.prompt for reply in replies], float)
        tokens = np.array([len(reply.tokens) for reply in replies], float)
        return self.base + self.prompt * prompts + self.token * tokens


def fit(replies: Sequence[Reply]) -> Unloaded:
    """Return the non-negative least squares fit to texts that were measured alone; errors are relative."""
    from scipy.optimize import nnls

    rows = np.array([[1.0, reply.prompt, len(reply.tokens)] for reply in replies])
    seconds = np.array([reply.seconds for reply in replies])
    base, prompt, token = nnls(rows / seconds[:, None], np.ones(len(replies)))[0]
    return Unloaded(float(base), float(prompt), float(token))


def read_prompts(model: Path, count: int, longest: int) -> list[Chat]:
    """Return so many prompts of at most `longest` tokens in the model's chat template, of Alpaca and Dolly in turns.

    Alpaca's are the first of the order in which the flow draws those that a predictor is judged by, so it learnt none.
    """
    from transformers import AutoTokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    settings = chat.read(AutoTokenizer.from_pretrained(model), model.name)
    template = ChatTemplate(settings.source, settings.special, settings.named)
    kept = []
    for number, path in enumerate((ALPACA, DOLLY)):
        texts = list(dict.fromkeys(prompts.load(f"parquet:{path}")[1]))
        order = np.random.default_rng(0).permutation(len(texts))[: 3 * count]
        written = [template.render([{"role": "user", "content": texts[at]}]) for at in order]
        encoded = [tuple(each.ids) for each in tokenizer.encode_batch(written, add_special_tokens=False)]
        share = count // 2 if number else count - count // 2
        kept.append([ids for ids in encoded if len(ids) <= longest][:share])
    mixed = [ids for pair in zip(*kept, strict=False) for ids in pair] + kept[0][len(kept[1]) :]
    texts = tokenizer.decode_batch([list(ids) for ids in mixed], skip_special_tokens=True)
    return [Chat(ids, text) for ids, text in zip(mixed, texts, strict=True)]


def times(kind: Arrivals, rate: float, count: int, seed: int) -> NDArray[np.float64]:
    """Return the seconds at which requests arrive, such that they arrive at exactly `rate` on average."""
    if kind == "at once":
        return np.zeros(count)
    shape = 1.0 if kind == "Poisson" else BURSTINESS
    ends = np.cumsum(np.random.default_rng([seed, count]).gamma(shape, 1.0, count))
    spread: NDArray[np.float64] = ends * (count / rate / ends[-1])
    return spread


@dataclass(frozen=True, slots=True)
class Body:
    """What requests say besides their prompts. `salt`: no prompt of one load is known from another."""

    limit: int
    salt: str

    def of(self, ids: Sequence[int]) -> bytes:
        fields: dict[str, Any] = {"model": MODEL, "prompt": list(ids), "max_tokens": self.limit, "temperature": 0.0}
        fields |= {"stream": True, "return_token_ids": True, "cache_salt": self.salt}
        return json.dumps(fields).encode()


def send(url: str, chats: Sequence[Chat], arrivals: Sequence[float], body: Body) -> list[Reply]:
    """Send every prompt at its time and return the replies in the prompts' order. Raises `WorkerError` where one fails."""
    bodies = [body.of(chat.ids) for chat in chats]
    timeout = aiohttp.ClientTimeout(total=None, sock_read=SILENCE)

    async def send_all() -> list[Reply]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
            start, pending = time.perf_counter() + 0.1, []
            for chat, arrival, content in zip(chats, arrivals, bodies, strict=True):
                await asyncio.sleep(max(start + arrival - time.perf_counter(), 0.0))
                pending.append(asyncio.create_task(_stream(session, url, chat, content, start, float(arrival))))
            return list(await asyncio.gather(*pending))

    try:
        return asyncio.run(send_all())
    except (TimeoutError, aiohttp.ClientError) as error:
        raise WorkerError(f"vLLM's server failed a request ({type(error).__name__}: {error})") from error


async def _stream(
    session: aiohttp.ClientSession, url: str, chat: Chat, content: bytes, start: float, arrival: float
) -> Reply:
    first, last, tokens, ended = math.nan, math.nan, list[int](), False
    headers = {"content-type": "application/json"}
    async with session.post(f"{url}/v1/completions", data=content, headers=headers) as response:
        if response.status != 200:
            raise WorkerError(f"vLLM's server answered {response.status}: {(await response.text())[:200]}")
        async for line in response.content:
            text = line.removeprefix(b"data:").strip()
            if not text or text == b"[DONE]":
                continue
            answer = json.loads(text)
            if "error" in answer:
                raise WorkerError(f"vLLM's server broke a text off: {answer['error']}")
            for choice in answer["choices"]:
                last = time.perf_counter()
                if choice.get("token_ids") and math.isnan(first):
                    first = last
                tokens += choice.get("token_ids") or ()
                ended = ended or choice.get("finish_reason") in ("stop", "length")
    if not ended:
        raise WorkerError("vLLM's server broke a text off")
    return Reply(len(chat.ids), tuple(tokens), first - start - arrival, last - start - arrival, arrival)
