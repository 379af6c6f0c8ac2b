"""An embedding model behind BentoML with its own adaptive batching: `bentoml serve ...text_bentoml_service:Embedder`.

Options: `engine`; `max_batch_size`; `max_latency_ms`, by which BentoML decides how long a batch may wait to be fuller.
A batch is padded to its longest text. The patches of Pliant's own service
(serving/bento/bentoml_patches.py) are applied here too.
"""

from __future__ import annotations

import os

import bentoml

from pliant.benchmarks.baselines.model import MODEL_VARIABLE, options
from pliant.benchmarks.baselines.text_model import PATH, TextModel, TextSpec
from pliant.serving.bento.bentoml_patches import freeze_gc, patch_timeouts, switch_off_tracing

OPTIONS = options()

switch_off_tracing()
patch_timeouts()


@bentoml.service(
    name="text-rival",
    workers=1,
    traffic={"timeout": 60},
    metrics={"enabled": False},
    tracing={"excluded_urls": ".*"},
    logging={"access": {"enabled": False}},
)
class Embedder:
    """Batches run in BentoML's own thread, so that its event loop goes on taking requests meanwhile."""

    def __init__(self) -> None:
        self._model = TextModel(TextSpec.of(os.environ[MODEL_VARIABLE]), OPTIONS["engine"], OPTIONS["max_batch_size"])
        freeze_gc()

    @bentoml.api(  # type: ignore[untyped-decorator]
        route=PATH, batchable=True, max_batch_size=OPTIONS["max_batch_size"], max_latency_ms=OPTIONS["max_latency_ms"]
    )
    def embed(self, inputs: list[str]) -> list[list[float]]:
        return self._model.embed(inputs)
