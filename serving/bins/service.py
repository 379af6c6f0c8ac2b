"""The bins system as a BentoML service: `bentoml serve serving.bins.service:BinsService`.

Knows BentoML's life cycle; what all services do in it says serving/bento/hosting.py, everything else is in the parts.
"""

from __future__ import annotations

import bentoml

from serving.bento.hosting import OPTIONS, begin, hosted
from serving.bins.api import create_app

# The last resort against a request that nothing else answers: beyond any deadline and any hung launch.
TIMEOUT = 300

app = hosted(create_app)


# At the root, where clients of text-embeddings-inference look. BentoML's /livez, /readyz, /healthz and /metrics come first.
@bentoml.asgi_app(app, path="/")
@bentoml.service(name="pliant_bins", traffic={"timeout": TIMEOUT}, **OPTIONS)
class BinsService:
    """Texts before a deadline, each by a runtime that is made for its length. See /docs."""

    @bentoml.on_startup  # type: ignore[untyped-decorator]
    async def start(self) -> None:
        """When this returns every worker has run its models."""
        from serving.bins.assembly import assemble
        from serving.bins.settings import BinsSettings

        self._assembly = await begin(app, assemble, BinsSettings)

    @bentoml.on_shutdown  # type: ignore[untyped-decorator]
    async def stop(self) -> None:
        """After all connections are done."""
        await self._assembly.stop()

    def __is_ready__(self) -> bool:
        return self._assembly.endpoint.ready

    def __is_alive__(self) -> bool:
        return self._assembly.endpoint.alive
