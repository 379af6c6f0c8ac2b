"""The packing service over an engine that computes nothing: `bentoml serve benchmarks.packing.door_service:HostService`."""

from __future__ import annotations

import bentoml

from serving.bento.hosting import OPTIONS, HostedService, host_app, with_access
from serving.packing.api import create_app

app = host_app(create_app)


@with_access(app)
@bentoml.asgi_app(app, path="/v1")
@bentoml.service(name="pliant_packing_host", traffic={"timeout": 300}, **OPTIONS)
class HostService(HostedService):
    """Does all that the packing service does, but for the engine's work."""

    SYSTEM, APP = "packing", app

    @bentoml.on_startup  # type: ignore[untyped-decorator]
    async def start(self) -> None:
        """Start the service, with an idle engine in place of each that it would have."""
        from benchmarks.packing.idle_engine import IdleBuild
        from serving.packing.assembly import Maker

        real = Maker._build
        Maker._build = lambda *args: IdleBuild(real(*args))  # type: ignore[assignment,method-assign]
        await HostedService.start(self)
