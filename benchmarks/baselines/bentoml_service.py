"""The champion behind BentoML with its own adaptive batching.

`bentoml serve pliant.benchmarks.baselines.bentoml_service:Classifier`.
Options: `max_batch_size`; `max_latency_ms` (a request that BentoML predicts to take longer is answered 503);
`inside`, requests in flight beyond which it answers 429 at once. BentoML's batches are lists, so one question
travels as a list of one: `ListOfOne` wraps the body and unwraps the answer. The patches that Pliant's own service has
(serving/bento/bentoml_patches.py) are applied here too.
"""

from __future__ import annotations

import logging
from typing import Any

import bentoml

from pliant.benchmarks.baselines.list_of_one import ListOfOne
from pliant.benchmarks.baselines.model import PATH, Answer, Model, options, read, spec
from pliant.serving.bento.bentoml_patches import freeze_gc, patch_timeouts, switch_off_tracing

OPTIONS = options()

switch_off_tracing()
patch_timeouts()


@bentoml.service(
    name="rival",
    workers=1,
    traffic={"timeout": 30, "max_concurrency": OPTIONS["inside"]},
    metrics={"enabled": False},
    tracing={"excluded_urls": ".*"},
    logging={"access": {"enabled": False}},
)
class Classifier:
    """Batches run in BentoML's own thread, so that its event loop goes on taking requests meanwhile."""

    def __init__(self) -> None:
        # Else every request that is turned away writes a traceback.
        logging.getLogger("bentoml").setLevel(logging.CRITICAL)
        logging.getLogger("_bentoml_impl").setLevel(logging.CRITICAL)
        self._model = Model(spec(), OPTIONS["max_batch_size"])
        freeze_gc()

    @bentoml.api(  # type: ignore[untyped-decorator]
        route=PATH, batchable=True, max_batch_size=OPTIONS["max_batch_size"], max_latency_ms=OPTIONS["max_latency_ms"]
    )
    def predict(self, questions: list[dict[str, Any]]) -> list[Answer]:
        return self._model.classify([read(fields, self._model.size) for fields in questions])


Classifier.add_asgi_middleware(ListOfOne)  # type: ignore[attr-defined]
