"""How BentoML hosts every system: the options of its service, the app that it mounts, and the start.

BentoML's supervisor imports this file and the services' files too, so heavy modules are imported in a start-up hook, which
runs in the service process only.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import bentoml
from fastapi import FastAPI
from opentelemetry.sdk.trace import TracerProvider
from starlette.middleware.cors import CORSMiddleware

from pliant import redaction
from pliant.errors import PliantError, SchedulerError
from pliant.fairness import trusted_tenants
from pliant.serving.bento.bentoml_patches import (
    count_in_memory,
    freeze_gc,
    leave_out_path_metrics,
    patch_timeouts,
    share_one_arena,
    share_the_interpreter,
    switch_off_tracing,
)
from pliant.serving.bento.supervisor import listening, prepare, report_end_shortly, wait_for_release
from pliant.serving.http.access.access import (
    AccessMiddleware,
    Gate,
    TenantMetrics,
    access_of,
    check_access,
    names,
    show_certificate,
)
from pliant.serving.http.app import RequestIdMiddleware, UnknownPathMiddleware, asks_for_prediction
from pliant.serving.http.door.door import Door, install
from pliant.serving.http.pages import front
from pliant.serving.monitoring import logs
from pliant.serving.tracing.middleware import TracingMiddleware, wants_traces

OPTIONS: Mapping[str, Any] = {
    "workers": 1,  # the scheduler's state is in one process
    "metrics": {"enabled": True},
    "tracing": {"excluded_urls": ".*"},  # see switch_off_tracing: even an unused span costs time
    "logging": {"access": {"enabled": False}},
    **listening(os.environ),
}
"""Options of every BentoML service."""
CORS: Mapping[str, Any] = {
    "allow_methods": ["GET", "POST"],
    "allow_headers": ["authorization", "content-type", "x-pliant-deadline", "x-request-id"],
    "expose_headers": ["x-request-id"],
}
"""What pages of other websites may send, where there are any that may."""

TIMEOUT = 300
"""Seconds until BentoML gives up a request that nothing else ends: longer than any deadline and any hung launch."""
FAILED = 2
"""Exit status of a service process that cannot start: settings, registry or artifacts do not let it."""
S = TypeVar("S")
H = TypeVar("H", bound=Callable[..., None])
logger = logging.getLogger("pliant.serving")


def host_app(create_app: Callable[[Path], FastAPI]) -> FastAPI:
    """Patch BentoML, put the door in front of its server, and return the app. Called before the service class is defined."""
    share_one_arena()
    redaction.install()
    logs.install()
    switch_off_tracing()
    leave_out_path_metrics()
    count_in_memory()
    patch_timeouts()
    # uvicorn's default trusts every process of this machine.
    os.environ["FORWARDED_ALLOW_IPS"] = os.environ.get("PLIANT_TRUSTED_PROXIES", "")
    app = create_app(Path(str(files("bentoml"))) / "_internal" / "server" / "static_content")
    app.state.door = Door(app.state.shape_of, asks_for_prediction)
    install(app.state.door)
    return app


def with_access(app: FastAPI) -> Callable[[S], S]:
    """Return a decorator of a BentoML service: nothing of it is answered before `AccessMiddleware` has let a request in.

    Every answer, also one that is turned away there, has an x-request-id.
    """

    def decorate(service: Any) -> Any:
        service.add_asgi_middleware(RequestIdMiddleware)
        origins = names(os.environ.get("PLIANT_CORS_ORIGINS", ""))
        if origins:
            service.add_asgi_middleware(CORSMiddleware, allow_origins=origins, **CORS)
        service.add_asgi_middleware(AccessMiddleware, state=app.state)
        if wants_traces(os.environ):  # else no request pays for what nobody reads
            service.add_asgi_middleware(TracingMiddleware, state=app.state)
        service.add_asgi_middleware(UnknownPathMiddleware, state=app.state)
        return service

    return decorate


def hosted(
    system: str,
    module: str,
    text: str,
    app: FastAPI,
    path: str = "/v1",
    root: FastAPI | None = None,
    seconds: int = TIMEOUT,
) -> Any:
    """Return the service of a system as `bentoml serve MODULE:SystemService` finds it; `text` says what it does.

    `app` is mounted at `path`, `root` at the root, and last there what every service has.
    `seconds`: until BentoML gives up a request.
    """
    members = {"SYSTEM": system, "APP": app, "__doc__": text, "__module__": module}
    inner = type(f"{system.capitalize()}Service", (HostedService,), members)
    service = bentoml.service(name=f"pliant_{system}", traffic={"timeout": seconds}, **OPTIONS)(inner)
    service = bentoml.asgi_app(app, path=path)(service)
    if root is not None:
        service = bentoml.asgi_app(root, path="/")(service)
    service = bentoml.asgi_app(front(system, app, path, root), path="/")(service)
    return with_access(app)(service)


def end_process(status: int) -> None:
    """End this process at once, with all that it has logged."""
    logging.shutdown()
    os._exit(status)


def on_deployment(hook: H) -> H:
    """Mark a hook for BentoML, whose own decorator makes it static: then it would not know its system."""
    bentoml.on_deployment(hook)
    return hook


class HostedService:
    """What BentoML calls in the service process of any system."""

    SYSTEM: ClassVar[str]  # its name in pliant/systems.py
    APP: ClassVar[FastAPI]
    _assembly: Any  # its endpoint, and how it ends
    _traces: TracerProvider | None

    @classmethod
    @on_deployment
    def prepare(cls) -> None:
        """Prepare the environment of the service process, and wait for what it serves, if the settings say so.

        BentoML calls it in its supervisor, before it listens and starts that process.
        """
        prepare(os.environ)
        report_end_shortly()
        wait_for_release(cls.SYSTEM, os.environ)

    @bentoml.on_startup  # type: ignore[untyped-decorator]
    async def start(self) -> None:
        """Start by the environment's settings; return when every model has run. BentoML accepts connections only then."""
        try:
            await self._start()
        except SchedulerError:  # a fault of our own
            raise
        except PliantError as error:  # BentoML would print two tracebacks
            logger.error("%s", error)
            end_process(FAILED)

    async def _start(self) -> None:
        from pliant.serving.settings import from_environment
        from pliant.serving.workers.devices import devices
        from pliant.systems import system

        stage = partial(system(self.SYSTEM).part, "serving")
        settings = from_environment(os.environ, stage("settings").SETTINGS)
        check_access(settings)
        logger.warning("the service runs on %s", ", ".join(devices(settings)))
        access, state = access_of(settings), self.APP.state
        self._assembly = await stage("assembly").SERVED(settings).assemble()
        endpoint = state.endpoint = self._assembly.endpoint
        trusted = trusted_tenants(settings.trusted_labels)
        state.gate = Gate(access, TenantMetrics(), state.shape_of, endpoint.metrics.errored, trusted=trusted)
        # A page of another website can read an answer only if it has passed CORSMiddleware.
        judge = access.sender if settings.cors_origins else access.judge
        state.door.open(endpoint.metrics.errored, endpoint.front_door, judge)
        if settings.tls_cert is not None:
            show_certificate(settings.tls_cert)
        self._traces = None
        if settings.trace_share:
            from pliant.serving.tracing.export import provider_of

            self._traces = provider_of(self.SYSTEM, settings.trace_share)
            state.tracer = self._traces.get_tracer("pliant")
        logs.install()  # also in the handlers of what was imported meanwhile, such as MLflow's
        share_the_interpreter()
        freeze_gc()

    @bentoml.on_shutdown  # type: ignore[untyped-decorator]
    async def stop(self) -> None:
        """Stop the service, after all connections are closed."""
        await self._assembly.stop()
        if self._traces is not None:
            from pliant.serving.tracing.export import close

            await close(self._traces)

    def __is_ready__(self) -> bool:
        return bool(self._assembly.endpoint.ready)

    def __is_alive__(self) -> bool:
        return bool(self._assembly.endpoint.alive)
