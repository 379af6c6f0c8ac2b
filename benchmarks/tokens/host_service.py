"""The tokens service over a device that computes nothing: `bentoml serve benchmarks.tokens.host_service:HostService`."""

from __future__ import annotations

import bentoml

from serving.bento.hosting import OPTIONS, HostedService, host_app, with_access
from serving.tokens.api import create_app

app = host_app(create_app)
SERVICE = "benchmarks.tokens.host_service:HostService"


@with_access(app)
@bentoml.asgi_app(app, path="/v1")
@bentoml.service(name="pliant_tokens_host", traffic={"timeout": 300}, **OPTIONS)
class HostService(HostedService):
    """Does all that the tokens service does, but for the device's work."""

    SYSTEM, APP = "tokens", app

    @bentoml.on_startup  # type: ignore[untyped-decorator]
    async def start(self) -> None:
        """Start the service, with an idle device process in place of each that it would have."""
        from benchmarks.tokens.idle_device import IdleBuild
        from serving.tokens import assembly

        real = assembly.build_plan
        assembly.build_plan = lambda *args: IdleBuild(real(*args))  # type: ignore[arg-type]
        await HostedService.start(self)
