"""The tokens system as a BentoML service: `bentoml serve pliant.serving.tokens.service:TokensService`.

What all services share is in serving/bento/hosting.py.
"""

from __future__ import annotations

import bentoml

from pliant.serving.bento.hosting import OPTIONS, HostedService, host_app, with_access
from pliant.serving.tokens.api import create_app, create_root

# Seconds until BentoML gives up a request that nothing else ends: longer than any deadline and any hung launch.
TIMEOUT = 300

app = host_app(create_app)


# At the root, which comes last: the Open Inference Protocol below /v2.
@with_access(app)
@bentoml.asgi_app(create_root(app), path="/")
@bentoml.asgi_app(app, path="/v1")
@bentoml.service(name="pliant_tokens", traffic={"timeout": TIMEOUT}, **OPTIONS)
class TokensService(HostedService):
    """Classifies images before a deadline, with as many tokens per image as the load allows. See /v1/docs."""

    SYSTEM, APP = "tokens", app
