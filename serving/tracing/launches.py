"""The spans of a request of tokens, bins or cascade: its waits for launches, the launches, and the device within each."""

from __future__ import annotations

from pliant.protocol import Request
from pliant.serving.answers import Completed, Rejected
from pliant.serving.tracing.traced import Traced, zero_of


def add_launches(traced: Traced, request: Request, answer: Completed | Rejected, now: float) -> None:
    """Add the spans of a request that has its answer; times are of the driver's clock, which says `now`."""
    since, task, zero = request.arrival, {"pliant.task": request.task}, zero_of(now)
    if isinstance(answer, Rejected):
        traced.add("queue", since, now, zero, task | {"pliant.dropped": answer.reason})
        return
    for result in answer.launches:
        launch, begun, ended = result.dispatched.launch, result.dispatched.at, result.ended
        traced.add("queue", since, begun, zero, task)
        values = task | {
            "pliant.setting": launch.setting,
            "pliant.batch_size": len(launch.requests),
            "pliant.worker": launch.worker,
        }
        traced.add("launch", begun, ended, zero, values).add(
            "device", max(begun, ended - result.seconds), ended, zero, {"pliant.device_seconds": result.seconds}
        )
        since = ended
