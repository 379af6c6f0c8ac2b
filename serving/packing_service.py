"""The packing system as a BentoML service: `bentoml serve serving.packing_service:PackingService`.

Knows BentoML's life cycle and in which order the parts start and stop; everything else is in the parts. The supervisor
imports this file too, so whatever is heavy is imported in the start-up hook, which runs in the service process alone.
"""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

import bentoml

from serving.bentoml_patches import freeze_gc, patch_timeouts, switch_off_tracing
from serving.packing_api import create_app

# The last resort against a request that nothing else answers. A long output in a long line may well take minutes.
TIMEOUT = 3600

switch_off_tracing()
patch_timeouts()
app = create_app(swagger=Path(str(files("bentoml"))) / "_internal" / "server" / "static_content")


@bentoml.asgi_app(app, path="/v1")
@bentoml.service(
    name="pliant_packing",
    workers=1,  # the books of what is in flight are this process's own
    traffic={"timeout": TIMEOUT},
    metrics={"enabled": True},
    tracing={"excluded_urls": ".*"},  # see switch_off_tracing: even a span that goes nowhere costs time
    logging={"access": {"enabled": False}},
)
class PackingService:
    """Texts continued by language models, packed into their memory by predicted lengths. See /v1/docs."""

    @bentoml.on_startup  # type: ignore[untyped-decorator]
    async def start(self) -> None:
        """BentoML accepts connections only after this: every engine runs by then."""
        from serving.packing_assembly import assemble
        from serving.settings import from_environment

        self._assembly = await assemble(from_environment(os.environ))
        app.state.endpoint = self._assembly.endpoint
        freeze_gc()

    @bentoml.on_shutdown  # type: ignore[untyped-decorator]
    async def stop(self) -> None:
        """After all connections are done."""
        await self._assembly.stop()

    def __is_ready__(self) -> bool:
        return self._assembly.endpoint.ready

    def __is_alive__(self) -> bool:
        return self._assembly.endpoint.alive
