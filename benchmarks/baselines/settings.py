"""The services by name, what each needs installed, and the settings that are tried of each: of pictures, then of texts.

Those of texts run on one core's worth of threads for the model, beside the process's own event loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

Options = Mapping[str, int | float | str]

INSTALL = "python -m pip install --constraint constraints.txt --editable '.[dev,bench]'"


@dataclass(frozen=True, slots=True)
class Rival:
    """A service. `fixed`: its own settings that are not tried out, with what they were found best at."""

    name: str
    title: str
    package: str  # to import
    health: str  # path that answers 200 once the service is up
    service: str  # in this package: what __main__.py runs, or MODULE:CLASS for BentoML's command
    fixed: Options

    @property
    def missing(self) -> str | None:
        """Return why it cannot be measured here; None where it can."""
        if find_spec(self.package) is not None:
            return None
        return f"{self.title} is not installed; install the bench extra: {INSTALL}"


@dataclass(frozen=True, slots=True)
class Tried:
    """What is tried of each service: its largest batch, and how many requests it lets in.

    The latter in seconds of what the model serves at gamma 0, as one would size a queue for a deadline: each service is
    told a number of requests, beyond which it refuses at once.
    """

    batch: int = 32
    seconds: float = 0.4

    def options(self, rival: Rival, capacity: float) -> Options:
        """Return all that the service's process is told; `capacity` in requests/s."""
        inside = max(self.batch, round(self.seconds * capacity))
        return {**rival.fixed, "max_batch_size": self.batch, "inside": inside}


LITSERVE: Options = {"batch_timeout": 0.005, "timeout": 0.5, "fast_queue": 0}
RIVALS = (
    Rival("bentoml", "BentoML batching", "bentoml", "/readyz", "bentoml_service:Classifier", {"max_latency_ms": 900}),
    Rival("litserve", "LitServe batching", "litserve", "/health", "litserve", LITSERVE),
    # Ray without its extra `serve` (which the bins system uses) lacks gRPC.
    Rival(
        "ray", "Ray Serve batching", "grpc", "/-/healthz", "ray", {"batch_wait_timeout_s": 0.005, "ingress": "direct"}
    ),
)

TRIED = (Tried(), Tried(seconds=0.3), Tried(seconds=0.5), Tried(batch=16), Tried(batch=64))
"""The first is what a quick comparison takes."""

DYNAMIC, SENTENCE, BENTOML = "dynamic", "sentence-transformers", "bentoml"


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


ALONE: Options = {"how": "dynamic", "engine": "onnx", "concurrency": 1}
ENCODING: list[Options] = [{"how": "sentence", "concurrency": concurrency} for concurrency in (2, 1, 40)]
# Of each name the best setting stands first, as a sweep found it (docs/log): a quick comparison takes that.
TEXT_RIVALS = (
    *_fastapi(DYNAMIC, "FastAPI, dynamic shapes one by one", "fastapi", ALONE),
    *(_bentoml("onnx", batch) for batch in (2, 8, 4, 32)),
    *(_bentoml("onnx", 8, 1000), _bentoml("onnx", 4, 300), _bentoml("eager", 8)),
    *_fastapi(SENTENCE, "sentence-transformers behind FastAPI", "sentence_transformers", *ENCODING),
)
"""The first of each name is what a quick comparison takes."""
