"""Prometheus metrics of a service: requests that arrived, how they ended, and what the device did.

A service cannot know whether an answer is correct, so two of the four outcomes of OTAS's paper, "accurate in time" and
"wrong in time", are one here: `on_time`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from pliant.fallbacks import Fallback
from pliant.protocol import Answer, Arrived, Cancelled, Drop, Failed, Finished, JournalEntry, Launch, Restarted
from pliant.serving.observe import Observation
from pliant.serving.request_context import is_copy

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
MAX_TENANTS = 256  # with labels of their own; the requests of further ones count as OTHER_TENANTS
OTHER_TENANTS = "others"


class TenantUse:
    """Counts what tenants had of the devices, the first `MAX_TENANTS` of them by name. Who is not named is not counted."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        text = "Seconds of the devices, by the tenants of requests"
        self._seconds = Counter("pliant_tenant_seconds", text, ("tenant",), registry=registry)
        text = "Requests answered or dropped"
        self._outcomes = Counter("pliant_tenant_outcomes", text, ("tenant", "outcome"), registry=registry)
        self._labels: set[str] = set()

    def label(self, tenant: str) -> str:
        """Return the label that the tenant is counted under."""
        if tenant not in self._labels and len(self._labels) >= MAX_TENANTS:
            return OTHER_TENANTS
        self._labels.add(tenant)
        return tenant

    def ran(self, tenant: str, seconds: float) -> None:
        """Count seconds of a device."""
        if tenant:
            self._seconds.labels(self.label(tenant)).inc(seconds)

    def ended(self, tenant: str, outcome: str) -> None:
        """Count a request that was answered or dropped."""
        if tenant:
            self._outcomes.labels(self.label(tenant), outcome).inc()


class Metrics:
    """Counts for one service.

    `setting` is what the system calls a launch's setting (tokens: gamma); `origins` are the labels that say which versions
    and which setting gave an answer.
    """

    def __init__(self, setting: str, origins: Sequence[str] = (), registry: CollectorRegistry = REGISTRY) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"pliant_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"pliant_{name}", text, buckets=buckets, registry=registry)

        self._arrivals = counter("arrivals", "Requests that reached the scheduler", "task")
        self._outcomes = counter("outcomes", "Requests by outcome", "task", "outcome")
        self._origins = tuple(origins)
        self._answers = counter("answers", "Answers by the versions and settings that gave them", "task", *origins)
        self._refreshes = counter("refreshes", "Polls of the registry for a new version, by outcome", "outcome")
        self._errors = counter("refusals", "Requests answered with an error, by error code", "code")
        self._launches = counter("launches", f"Batches launched, by {setting}", setting)
        self._failures = counter("worker_failures", "Device processes that died or hung, during a launch or idle")
        self._model_errors = counter("model_errors", "Launches in which the model raised an error; the process lives")
        self._fallbacks = counter(
            "fallbacks", "Slower ways that device processes took since a better one failed", "kind"
        )
        self._restarts = counter("scheduler_restarts", "Errors of the scheduler, after which a fresh one went on")
        self._cancelled = counter("cancelled", "Requests whose client left before the answer")
        self._tenants = TenantUse(registry)
        self._owners: dict[int, str] = {}  # of the requests that have no answer yet, where a tenant is named
        self._launched: dict[int, tuple[int, list[str]]] = {}  # launch -> its requests, and the tenants among these
        self._batch = histogram("batch_size", "Requests per launch", SIZES)
        self._queue = histogram("queue_seconds", "Seconds from arrival to launch, per answered request", SECONDS)
        self._run = histogram("run_seconds", "Seconds on the device, per launch", SECONDS)
        self._waiting = Gauge(
            "pliant_waiting", "Requests that wait for a launch", registry=registry, multiprocess_mode="livesum"
        )

    def observe(self, entry: JournalEntry, setting_name: Callable[[int], str] = str) -> None:
        """Count one entry of the journal; `setting_name` gives the label of a launch's setting."""
        self._observe_tenants(entry)
        match entry.event:
            case Arrived(request) if not is_copy():
                self._arrivals.labels(request.task).inc()
            case Finished(_, seconds, results) if results:
                self._run.observe(seconds)
            case Failed(_, _, lost):
                (self._failures if lost else self._model_errors).inc()
            case Cancelled():
                self._cancelled.inc()
            case Restarted():
                self._restarts.inc()
                self._launched.clear()
        for action in entry.actions:
            if isinstance(action, Launch) and action.kind == "run":
                self._launches.labels(setting_name(action.setting)).inc()
                self._batch.observe(len(action.requests))

    def _observe_tenants(self, entry: JournalEntry) -> None:
        """Count who had the devices, and whose requests were answered or dropped, where requests name a tenant."""
        if isinstance(entry.event, Arrived) and entry.event.request.tenant and not is_copy():
            self._owners[entry.event.request.id] = self._tenants.label(entry.event.request.tenant)
        if not self._owners and not self._launched:
            return
        match entry.event:
            case Finished(launch, seconds) if launch in self._launched:
                count, tenants = self._launched.pop(launch)
                for tenant in tenants:
                    self._tenants.ran(tenant, seconds / count)
            case Failed(launch):
                self._launched.pop(launch, None)
            case Cancelled(request):
                self._owners.pop(request, None)
        for action in entry.actions:
            match action:
                case Launch(id, _, requests) if requests:
                    named = [self._owners[request] for request in requests if request in self._owners]
                    if named:
                        self._launched[id] = len(requests), named
                case Answer(request) | Drop(request) if request in self._owners:
                    outcome = "answered" if isinstance(action, Answer) else f"dropped_{action.reason}"
                    self._tenants.ended(self._owners.pop(request), outcome)

    def dropped(self, task: str, reason: str) -> None:
        """Count a request without an answer, unless it is a copy, whose answer nobody gets."""
        if not is_copy():
            self._outcomes.labels(task, f"dropped_{reason}").inc()

    def answered(self, observation: Observation) -> None:
        """Count an answer; a label that its origin lacks is empty."""
        task, origin = observation.task, observation.origin
        self._outcomes.labels(task, observation.outcome).inc()
        self._queue.observe(observation.measured["queue_seconds"])
        self._answers.labels(task, *(str(origin.get(label, "")) for label in self._origins)).inc()

    def died_idle(self) -> None:
        self._failures.inc()

    def fell_back(self, fallback: Fallback) -> None:
        self._fallbacks.labels(fallback.kind).inc()

    def refreshed(self, outcome: str) -> None:
        self._refreshes.labels(outcome).inc()

    def errored(self, code: str, number: int = 1) -> None:
        if is_copy():
            return
        self._errors.labels(code).inc(number)

    def waiting(self, count: int) -> None:
        self._waiting.set(count)
