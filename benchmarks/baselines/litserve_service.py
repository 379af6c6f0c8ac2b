"""The champion behind LitServe with its dynamic batching: an API process, a queue, and a process that holds the model.

Options: `max_batch_size`; `batch_timeout`, seconds to wait for a fuller batch (0 takes what is queued); `timeout`, seconds
after which a queued request is answered 504 and not run; `inside`, connections beyond which its HTTP server
answers 503 at once; `fast_queue`, 1 for ZeroMQ between the processes.
"""

# No `from __future__ import annotations` here: LitServe reads the annotations of its hooks.
from collections.abc import Sequence
from typing import Any

import litserve
from fastapi import Request, Response

from pliant.benchmarks.baselines.model import PATH, Answer, Model, Question, options, read, spec


class Classifier(litserve.LitAPI):  # type: ignore[misc]
    """Everything here runs in the process that holds the model; LitServe calls it."""

    def setup(self, device: str) -> None:  # noqa: ARG002
        self._model = Model(spec(), self.max_batch_size)

    def decode_request(self, request: Request) -> Question:
        """Annotated as LitServe wants it; what comes is the parsed body."""
        return read(request, self._model.size)

    def batch(self, inputs: Sequence[Question]) -> Sequence[Question]:
        return inputs

    def predict(self, x: Any) -> list[Answer]:
        return self._model.classify(x if isinstance(x, list | tuple) else [x])

    def unbatch(self, output: list[Answer]) -> list[Answer]:
        return output

    def encode_response(self, output: Answer) -> Response:
        """Annotated so that FastAPI checks nothing; what goes is the answer."""
        return output  # type: ignore[return-value]


def main(port: int) -> None:
    """Serve until SIGTERM."""
    given = options()
    batching = {name: given[name] for name in ("max_batch_size", "batch_timeout")}
    api = Classifier(**batching, api_path=PATH, enable_async=False)
    queue = {"timeout": given["timeout"], "fast_queue": bool(given["fast_queue"])}
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1, **queue)
    quiet = {"log_level": "critical", "generate_client_file": False, "access_log": False}
    server.run(host="127.0.0.1", port=port, num_api_servers=1, limit_concurrency=given["inside"], **quiet)
