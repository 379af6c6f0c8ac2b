"""The packing service without processes: its real parts over a fake engine on the test's own loop, and a fake predictor."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from prometheus_client import CollectorRegistry

from pliant.packing.artifact import Generator, Packing, Predictor
from pliant.packing.forecast import LEVELS
from pliant.packing.request import Memory
from pliant.packing.steps import LinearSteps
from serving.packing_api import create_app
from serving.packing_assembly import Assembly, assemble
from serving.packing_catalog import GENERATOR_PREFIX, PREDICTOR_PREFIX, PREFIX
from serving.settings import Settings
from tests.serving.packing_fakes import MEMORY, FakeWorker, new_tokenizer

QUIET = Settings(
    system="packing", threads=1, refresh_seconds=0.0, any_profile=True, max_body_bytes=200_000, predict_limit=5.0
)
CONTEXT = 128
TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ raise_exception('no system messages here') }}{% endif %}"
    "{{ '<|assistant|>' if message['role'] == 'assistant' else '<|user|>' }}{{ message['content'] }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
MARGINAL = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 48.0, 64.0)
SAID = (3.0, 4.0, 6.0, 10.0, 20.0, 30.0, 40.0, 50.0), 32


def generator(seed: int = 0, **changes: Any) -> Generator:
    """Without a model: the fake engine needs none."""
    tokenizer = new_tokenizer()
    told = {
        "name": "tales",
        "config": json.dumps({"vocab_size": tokenizer.get_vocab_size(), "eos_token_id": 0}),
        "tokenizer": tokenizer.to_str(),
        "chat_template": TEMPLATE,
        "context": CONTEXT,
        "ends": (0,),
        "data": "data",
        "weights": {"w": np.full(2, seed, np.float32)},
    }
    return Generator(**{**told, **changes})


def predictor(digest: str, **changes: Any) -> Predictor:
    told = {
        "name": "tales",
        "generator": digest,
        "config": "{}",
        "tokenizer": "{}",
        "max_length": 64,
        "levels": LEVELS,
        "bucket_tokens": 13,
        "marginal": MARGINAL,
        "metrics": {},
        "data": "data",
        "weights": {"w": np.zeros(2, np.float32)},
    }
    return Predictor(**{**told, **changes})


def packing(generator_digest: str, predictor_digest: str, **changes: Any) -> Packing:
    told = {
        "name": "tales",
        "generator": generator_digest,
        "predictor": predictor_digest,
        "device_class": "a-device",
        "memory": MEMORY,
        "kv_bytes": 64,
        "steps": LinearSteps(1e-3, 1e-5, 1e-5, 1e-7, 0.0),
        "level": 0.5,
        "patience": 0.05,
        "prompt_tokens": np.full(4, 8, np.int32),
        "output_tokens": np.full(4, 10, np.int32),
        "forecasts": np.tile(np.array(MARGINAL, np.float32), (4, 1)),
        "buckets": np.full(4, 26, np.int32),
    }
    return Packing(**{**told, **changes})


def publish(registry: Any, seed: int = 0, memory: Memory = MEMORY, made: Generator | None = None) -> None:
    """A generator, its predictor and its plan under the alias."""
    digest = registry.publish(GENERATOR_PREFIX + "tales", made or generator(seed))
    told = registry.publish(PREDICTOR_PREFIX + "tales", predictor(digest))
    registry.publish(PREFIX + "tales", packing(digest, told, memory=memory))


def predict(texts: Sequence[str]) -> list[Any]:
    return [SAID for _ in texts]


class Service:
    """The app over its real endpoint. All of it lives on one loop, which runs while `call` or `wait` does."""

    def __init__(self, registry: Any, settings: Settings) -> None:
        self.registry, self.counted = registry, CollectorRegistry()
        self.workers: list[FakeWorker] = []
        self.trouble = ""  # of the engines to come: why they do not start
        self.predict: Any = predict
        self.loop = asyncio.new_event_loop()
        started = assemble(settings, registry, self._hire, lambda _served: self._predict, self.counted)
        self.assembly: Assembly = self.wait(started)
        self.app = create_app(Path(__file__).parent)
        self.app.state.endpoint = self.endpoint

    @property
    def endpoint(self) -> Any:
        return self.assembly.endpoint

    @property
    def engine(self) -> Any:
        return self.assembly.generations.present.ways["tales"].engine

    @property
    def worker(self) -> FakeWorker:
        return self.workers[-1]

    def wait(self, awaitable: Any) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(awaitable, 300))

    async def until(self, condition: Any) -> None:
        while not condition():
            await asyncio.sleep(0.001)

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://test")

    async def posting(self, path: str, value: Any, **headers: str) -> httpx.Response:
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        told = {"content-type": "application/json", **{name.replace("_", "-"): text for name, text in headers.items()}}
        async with self.client() as client:
            return await client.post(path, content=content, headers=told)

    def post(self, path: str, value: Any, **headers: str) -> httpx.Response:
        return self.wait(self.posting(path, value, **headers))

    def complete(self, prompt: Any = "Tell me", **told: Any) -> httpx.Response:
        """Greedy, unless it is told otherwise."""
        return self.post("/completions", {"model": "tales", "prompt": prompt, "temperature": 0, **told})

    def chat(self, content: Any = "Tell me", **told: Any) -> httpx.Response:
        messages = [{"role": "user", "content": content}]
        return self.post("/chat/completions", {"model": "tales", "messages": messages, "temperature": 0, **told})

    def get(self, path: str) -> httpx.Response:
        async def getting() -> httpx.Response:
            async with self.client() as client:
                return await client.get(path)

        return self.wait(getting())

    def status(self) -> Any:
        return self.get("/status").json()

    def sample(self, name: str, **labels: str) -> float | None:
        return self.counted.get_sample_value(name, labels)

    def _hire(self, next_build: Any) -> FakeWorker:
        self.workers.append(FakeWorker(next_build, self.trouble))
        return self.workers[-1]

    def _predict(self, texts: Sequence[str]) -> Any:
        return self.predict(texts)


@contextmanager
def serving(registry: Any, settings: Settings = QUIET):
    service = Service(registry, settings)
    try:
        yield service
    finally:
        for worker in service.workers:
            worker.held = False
        service.wait(service.assembly.stop())
        service.loop.close()


def events(response: httpx.Response) -> list[Any]:
    """The pieces of a stream, the last one as text."""
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def error_of(response: httpx.Response) -> dict[str, Any]:
    """What an error says; it has OpenAI's shape."""
    content = response.json()
    assert set(content) == {"error"} and set(content["error"]) == {"message", "type", "param", "code"}
    return content["error"]
