"""An embedding model behind FastAPI and uvicorn, as one writes it first: every request runs by itself, in the thread pool.

Options: `how` is "dynamic" (each text at its own length, by an `engine`) or "sentence" (`encode` of sentence-transformers);
`concurrency`, how many requests run at once, the others waiting in order.
"""

# No `from __future__ import annotations`: FastAPI reads the annotations of what it serves.
import gc
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio.to_thread
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from pliant.benchmarks.baselines.model import MODEL_VARIABLE, options
from pliant.benchmarks.baselines.text_model import PATH, TextModel, TextSpec
from pliant.device import AUTO, resolve_device
from pliant.flows.servers import HOST

Embed = Callable[[list[str]], list[list[float]]]


class Question(BaseModel):
    inputs: list[str]


def embedder(spec: TextSpec, tried: Mapping[str, Any]) -> Embed:
    """Return what answers a request's texts."""
    if tried["how"] != "sentence":
        return TextModel(spec, tried["engine"]).embed
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(1)
    model = SentenceTransformer(spec.folder, device=resolve_device(AUTO))
    model.max_seq_length = spec.max_length

    def embed(texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = model.encode(texts, show_progress_bar=False).tolist()
        return vectors

    embed(["a text to begin with"])
    return embed


def app(embed: Embed, concurrency: int) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = concurrency
        gc.collect()
        gc.freeze()
        yield

    service = FastAPI(lifespan=lifespan)

    @service.get("/health")
    async def health() -> None:
        return None

    @service.post(PATH)
    def answer(question: Question) -> list[list[float]]:
        return embed(question.inputs)

    return service


def main(port: int) -> None:
    tried = options()
    embed = embedder(TextSpec.of(os.environ[MODEL_VARIABLE]), tried)
    uvicorn.run(app(embed, tried["concurrency"]), host=HOST, port=port, log_level="warning", access_log=False)
