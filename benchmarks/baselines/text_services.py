"""The text services by name, and the settings that are tried of each.

All run on one core's worth of threads for the model (one request or batch at a time where `concurrency` is 1), beside the
process's own event loop.
"""

from __future__ import annotations

from dataclasses import dataclass

from pliant.benchmarks.baselines.settings import Options, Rival

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
    return [TextRival(Rival(name, title, package, "/health", "text_fastapi", {}), options) for options in tried]


def _bentoml(engine: str, batch: int, milliseconds: int = 60_000) -> TextRival:
    options: Options = {"engine": engine, "max_batch_size": batch, "max_latency_ms": milliseconds}
    service = "text_bentoml_service:Embedder"
    return TextRival(Rival(BENTOML, "BentoML batching", "bentoml", "/readyz", service, {}), options)


# Of each name the best setting stands first, as a sweep found it (docs/log): a quick comparison takes that.
RIVALS = (
    *_fastapi(
        DYNAMIC, "FastAPI, dynamic shapes one by one", "fastapi", {"how": "dynamic", "engine": "onnx", "concurrency": 1}
    ),
    *(_bentoml("onnx", batch) for batch in (2, 8, 4, 32)),
    _bentoml("onnx", 8, 1000),
    _bentoml("onnx", 4, 300),
    _bentoml("eager", 8),
    *_fastapi(
        SENTENCE,
        "sentence-transformers behind FastAPI",
        "sentence_transformers",
        *({"how": "sentence", "concurrency": concurrency} for concurrency in (2, 1, 40)),
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
