"""The champion behind Ray Serve with `serve.batch`: one replica, which holds the model.

Options: `max_batch_size`; `batch_wait_timeout_s`, seconds to wait for a fuller batch; `inside`, requests that are let in:
up to two batches go to the replica, the rest are queued, and what comes beyond is answered 503. By whom the replica is
reached, Ray Serve takes from its environment: see `launch.py`.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
import threading
from collections.abc import Sequence

import ray
from ray import serve
from ray.serve.config import HTTPOptions
from ray.serve.schema import LoggingConfig
from starlette.requests import Request

from pliant.benchmarks.baselines.model import PATH, Answer, Model, Question, options, read, spec
from pliant.benchmarks.baselines.settings import Options
from pliant.flows import servers


class Classifier:
    """The replica. A batch runs in a thread, so that the event loop goes on taking requests meanwhile."""

    def __init__(self, settings: Options) -> None:
        self._model = Model(spec(), int(settings["max_batch_size"]))
        self.classify.set_max_batch_size(int(settings["max_batch_size"]))
        self.classify.set_batch_wait_timeout_s(float(settings["batch_wait_timeout_s"]))

    async def __call__(self, request: Request) -> Answer:
        answer: Answer = await self.classify(read(await request.json(), self._model.size))
        return answer

    @serve.batch  # type: ignore[untyped-decorator]
    async def classify(self, questions: Sequence[Question]) -> list[Answer]:
        return await asyncio.to_thread(self._model.classify, questions)


def main(port: int) -> None:
    """Serve until SIGTERM. Ray's own files go to a short path, as its sockets need, and away at the end."""
    given, host = options(), servers.HOST
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address=host, _temp_dir=folder)
        logging = LoggingConfig(log_level="ERROR", enable_access_log=False)
        # In direct ingress the replica takes `port`; Ray's proxy starts regardless, anywhere else.
        elsewhere = servers.free_port() if given["ingress"] == "direct" else port
        serve.start(http_options=HTTPOptions(host=host, port=elsewhere), logging_config=logging)
        ongoing = min(2 * given["max_batch_size"], given["inside"])  # one batch runs, the next is filled
        queued = max(given["inside"] - ongoing, 1)
        limits = {"num_replicas": 1, "max_ongoing_requests": ongoing, "max_queued_requests": queued}
        deployment = serve.deployment(Classifier, logging_config=logging, **limits)
        serve.run(deployment.bind(given), route_prefix=PATH)
        stopped = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):  # after Ray has set its own
            signal.signal(number, lambda *_: stopped.set())
        stopped.wait()
        serve.shutdown()
        ray.shutdown()
