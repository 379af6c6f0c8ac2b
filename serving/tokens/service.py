"""The tokens system as a BentoML service: `bentoml serve serving.tokens.service:TokensService`.

Knows BentoML's life cycle; what all services do in it says serving/bento/hosting.py, everything else is in the parts.
"""

from __future__ import annotations

import bentoml

from serving.bento.hosting import OPTIONS, begin, hosted
from serving.tokens.api import create_app

# The last resort against a request that nothing else answers: beyond any deadline and any hung launch.
TIMEOUT = 300

app = hosted(create_app)


@bentoml.asgi_app(app, path="/v1")
@bentoml.service(name="pliant_tokens", traffic={"timeout": TIMEOUT}, **OPTIONS)
class TokensService:
    """Vision tasks before a deadline, by as many tokens as the load allows. See /v1/docs."""

    @bentoml.on_startup  # type: ignore[untyped-decorator]
    async def start(self) -> None:
        """When this returns every worker has run its model."""
        from serving.tokens.assembly import assemble
        from serving.tokens.settings import TokensSettings

        self._assembly = await begin(app, assemble, TokensSettings)

    @bentoml.on_shutdown  # type: ignore[untyped-decorator]
    async def stop(self) -> None:
        """After all connections are done."""
        await self._assembly.stop()

    def __is_ready__(self) -> bool:
        return self._assembly.endpoint.ready

    def __is_alive__(self) -> bool:
        return self._assembly.endpoint.alive
