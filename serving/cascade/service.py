"""The cascade system as a BentoML service: `bentoml serve serving.cascade.service:CascadeService`.

Knows BentoML's life cycle; what all services do in it says serving/bento/hosting.py, everything else is in the parts.
"""

from __future__ import annotations

import bentoml

from serving.bento.hosting import OPTIONS, begin, hosted
from serving.cascade.api import create_app

# The last resort against a request that nothing else answers: beyond any deadline and any hung launch.
TIMEOUT = 300

app = hosted(create_app)


@bentoml.asgi_app(app, path="/v1")
@bentoml.service(name="pliant_cascade", traffic={"timeout": TIMEOUT}, **OPTIONS)
class CascadeService:
    """Texts before a deadline, by a small model where it is sure and a larger one where not. See /v1/docs."""

    @bentoml.on_startup  # type: ignore[untyped-decorator]
    async def start(self) -> None:
        """When this returns every worker has run its models."""
        from serving.cascade.assembly import assemble
        from serving.cascade.settings import CascadeSettings

        self._assembly = await begin(app, assemble, CascadeSettings)

    @bentoml.on_shutdown  # type: ignore[untyped-decorator]
    async def stop(self) -> None:
        """After all connections are done."""
        await self._assembly.stop()

    def __is_ready__(self) -> bool:
        return self._assembly.endpoint.ready

    def __is_alive__(self) -> bool:
        return self._assembly.endpoint.alive
