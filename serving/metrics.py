"""Counts for Prometheus: requests that arrived, how they ended, what the device did, and whether the service is ready.

A service cannot know whether an answer is correct, so two of the four outcomes of OTAS's paper, "accurate in time" and
"wrong in time", are one here: `on_time`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from prometheus_client import REGISTRY, CollectorRegistry

from pliant.fallbacks import Fallback
from pliant.protocol import Answer, Arrived, Cancelled, Drop, Failed, Finished, JournalEntry, Launch, Restarted
from pliant.serving.loop.observe import Observation
from pliant.serving.monitoring.metric_list import SERVICE, STATE, TENANT_USE, driven, register
from pliant.serving.request_context import is_copy
from pliant.serving.state_file import writings

MAX_TENANTS = 256  # with labels of their own; the requests of further ones count as OTHER_TENANTS
OTHER_TENANTS = "others"
LOOK_SECONDS = 5.0  # between two looks at the service's state


class TenantUse:
    """Counts what named tenants had of the devices, the first `MAX_TENANTS` of them by name."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._of = register(TENANT_USE, registry)
        self._labels: set[str] = set()

    def label(self, tenant: str) -> str:
        """Return the label that the tenant is counted under."""
        if tenant not in self._labels and len(self._labels) >= MAX_TENANTS:
            return OTHER_TENANTS
        self._labels.add(tenant)
        return tenant

    def ran(self, tenant: str, seconds: float) -> None:
        """Count seconds of a device."""
        self._of["tenant_seconds"].labels(self.label(tenant)).inc(seconds)

    def ended(self, tenant: str, outcome: str) -> None:
        """Count a request that was answered or dropped."""
        self._of["tenant_outcomes"].labels(self.label(tenant), outcome).inc()


class Metrics:
    """Counts for one service.

    `setting` is what the system calls a launch's setting (tokens: gamma); `origins` are the labels that say which versions
    and which setting gave an answer.
    """

    def __init__(self, setting: str, origins: Sequence[str] = (), registry: CollectorRegistry = REGISTRY) -> None:
        self._of, self._origins = register((*SERVICE, *driven(setting, origins)), registry), tuple(origins)
        self._tenants = TenantUse(registry)
        self._owners: dict[int, str] = {}  # of the requests that have no answer yet, where a tenant is named
        self._launched: dict[int, tuple[int, list[str]]] = {}  # launch -> its requests, and the tenants among these

    def observe(self, entry: JournalEntry, setting_name: Callable[[int], str] = str) -> None:
        """Count one entry of the journal; `setting_name` gives the label of a launch's setting."""
        self._observe_tenants(entry)
        match entry.event:
            case Arrived(request) if not is_copy():
                self._of["arrivals"].labels(request.task).inc()
            case Finished(_, seconds, results) if results:
                self._of["run_seconds"].observe(seconds)
            case Failed(_, _, lost):
                self._of["worker_failures" if lost else "model_errors"].inc()
            case Cancelled():
                self._of["cancelled"].inc()
            case Restarted():
                self._of["scheduler_restarts"].inc()
                self._launched.clear()
        for action in entry.actions:
            if isinstance(action, Launch) and action.kind == "run":
                self._of["launches"].labels(setting_name(action.setting)).inc()
                self._of["batch_size"].observe(len(action.requests))

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

    def dropped(self, task: str, reason: str, utility: float = 1.0) -> None:
        """Count a request without an answer, unless it is a copy, whose answer nobody gets."""
        if not is_copy():
            self._of["outcomes"].labels(task, f"dropped_{reason}").inc()
            self._of["utility_offered"].inc(utility)

    def answered(self, observation: Observation) -> None:
        """Count an answer; a label that its origin lacks is empty."""
        task, origin = observation.task, observation.origin
        self._of["outcomes"].labels(task, observation.outcome).inc()
        self._of["utility_offered"].inc(observation.utility)
        if observation.outcome == "on_time":
            self._of["utility_earned"].inc(observation.utility)
        for name, value in observation.measured.items():
            self._of[name].observe(value)
        self._of["answers"].labels(task, *(str(origin.get(label, "")) for label in self._origins)).inc()

    def died_idle(self) -> None:
        self._of["worker_failures"].inc()

    def fell_back(self, fallback: Fallback) -> None:
        self._of["fallbacks"].labels(fallback.kind).inc()

    def refreshed(self, outcome: str) -> None:
        self._of["refreshes"].labels(outcome).inc()

    def errored(self, code: str, number: int = 1) -> None:
        if is_copy():
            return
        self._of["refusals"].labels(code).inc(number)

    def waiting(self, count: int) -> None:
        self._of["waiting"].set(count)


class StateMetrics:
    """What one service says of itself."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._of = register(STATE, registry)

    def emitted(self, name: str) -> None:
        """Count an event of this name."""
        self._of["events"].labels(name).inc()

    async def follow(self, ready: Callable[[], bool], devices: Callable[[], int], waiting: Callable[[], int]) -> None:
        """Show whether it is ready, how many devices are up and events wait, what the event loop has taken of its core, and
        what cannot be written, until cancelled."""
        while True:
            self._of["ready"].set(ready())
            self._of["devices"].set(devices())
            self._of["loop_seconds"].set(time.thread_time())
            self._of["events_waiting"].set(waiting())
            for what, failing in writings().items():
                self._of["write_failing"].labels(what).set(failing)
            await asyncio.sleep(LOOK_SECONDS)
