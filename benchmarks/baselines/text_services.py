"""The text services by name, the settings that are tried of each, and how one is started.

All run on one core's worth of threads for the model (one request or batch at a time where `concurrency` is 1), beside the
process's own event loop.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.baselines.launch import started
from benchmarks.baselines.model import MODEL_VARIABLE, OPTIONS_VARIABLE
from benchmarks.baselines.settings import Options, Rival
from benchmarks.baselines.text_model import TextSpec
from flows import servers

PADDED, DYNAMIC, SENTENCE, BENTOML = "padded", "dynamic", "sentence-transformers", "bentoml"


@dataclass(frozen=True, slots=True)
class TextRival:
    """A service under one of its settings; of several with one name the best is compared."""

    rival: Rival
    options: Options

    @property
    def name(self) -> str:
        return self.rival.name


def _fastapi(name: str, title: str, package: str, *tried: Options) -> list[TextRival]:
    return [TextRival(Rival(name, title, package, "/health", {}), options) for options in tried]


def _bentoml(*tried: Options) -> list[TextRival]:
    return [TextRival(Rival(BENTOML, "BentoML batching", "bentoml", "/readyz", {}), options) for options in tried]


# Of each name the best setting stands first, as a sweep found it (LOG.md): a quick comparison takes that.
RIVALS = (
    *_fastapi(
        DYNAMIC,
        "FastAPI, dynamic shapes one by one",
        "fastapi",
        {"how": "dynamic", "engine": "onnx", "concurrency": 1},
    ),
    *_bentoml(
        {"engine": "onnx", "max_batch_size": 2, "max_latency_ms": 60_000},
        {"engine": "onnx", "max_batch_size": 8, "max_latency_ms": 60_000},
        {"engine": "onnx", "max_batch_size": 4, "max_latency_ms": 60_000},
        {"engine": "onnx", "max_batch_size": 32, "max_latency_ms": 60_000},
        {"engine": "onnx", "max_batch_size": 8, "max_latency_ms": 1000},
        {"engine": "onnx", "max_batch_size": 4, "max_latency_ms": 300},
        {"engine": "eager", "max_batch_size": 8, "max_latency_ms": 60_000},
    ),
    *_fastapi(
        SENTENCE,
        "sentence-transformers behind FastAPI",
        "sentence_transformers",
        {"how": "sentence", "concurrency": 2},
        {"how": "sentence", "concurrency": 1},
        {"how": "sentence", "concurrency": 40},
    ),
    *_fastapi(
        PADDED,
        "FastAPI, padding to the maximum",
        "fastapi",
        {"how": "padded", "engine": "onnx", "concurrency": 1},
        {"how": "padded", "engine": "eager", "concurrency": 1},
    ),
)
"""The first of each name is what a quick comparison takes."""


@contextmanager
def serving(tried: TextRival, spec: TextSpec, home: Path) -> Iterator[str]:
    """The address of the service, up; see `launch.started`."""
    port = servers.free_port()
    folder = home / "rivals" / f"text-{tried.name}-{port}"
    told: Mapping[str, str] = {
        MODEL_VARIABLE: spec.text(),
        OPTIONS_VARIABLE: json.dumps(dict(tried.options)),
        "TOKENIZERS_PARALLELISM": "false",
    }
    with started(tried.rival, port, _command(tried, port), told, folder) as address:
        yield address


def _command(tried: TextRival, port: int) -> list[str]:
    if tried.name != BENTOML:
        return [sys.executable, "-m", "benchmarks.baselines", "text_fastapi", str(port)]
    service = "benchmarks.baselines.text_bentoml_service:Embedder"
    return [sys.executable, "-m", "bentoml", "serve", service, "--host", servers.HOST, "--port", str(port)]
