"""The packing system as a BentoML service: `bentoml serve serving.packing.service:PackingService`.

Knows BentoML's life cycle; what all services do in it says serving/bento/hosting.py, everything else is in the parts.
"""

from __future__ import annotations

import bentoml

from serving.bento.hosting import OPTIONS, begin, hosted
from serving.packing.api import create_app

# The last resort against a request that nothing else answers. A long output in a long line may well take minutes.
TIMEOUT = 3600

app = hosted(create_app)


@bentoml.asgi_app(app, path="/v1")
@bentoml.service(name="pliant_packing", traffic={"timeout": TIMEOUT}, **OPTIONS)
class PackingService:
    """Texts continued by language models, packed into their memory by predicted lengths. See /v1/docs."""

    @bentoml.on_startup  # type: ignore[untyped-decorator]
    async def start(self) -> None:
        """When this returns every engine runs."""
        from serving.packing.assembly import assemble
        from serving.packing.settings import PackingSettings

        self._assembly = await begin(app, assemble, PackingSettings)

    @bentoml.on_shutdown  # type: ignore[untyped-decorator]
    async def stop(self) -> None:
        """After all connections are done."""
        await self._assembly.stop()

    def __is_ready__(self) -> bool:
        return self._assembly.endpoint.ready

    def __is_alive__(self) -> bool:
        return self._assembly.endpoint.alive
