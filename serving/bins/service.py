"""The bins system as a BentoML service: `bentoml serve pliant.serving.bins.service:BinsService`.

What all services share is in serving/bento/hosting.py.
"""

from __future__ import annotations

import bentoml

from pliant.serving.bento.hosting import OPTIONS, HostedService, host_app, with_access
from pliant.serving.bins.api import create_app

# Seconds until BentoML gives up a request that nothing else ends: longer than any deadline and any hung launch.
TIMEOUT = 300

app = host_app(create_app)


# At the root, where clients of text-embeddings-inference look. BentoML's /livez, /readyz, /healthz and /metrics come first.
@with_access(app)
@bentoml.asgi_app(app, path="/")
@bentoml.service(name="pliant_bins", traffic={"timeout": TIMEOUT}, **OPTIONS)
class BinsService(HostedService):
    """Embeds and classifies texts before a deadline, each in a runtime made for its length. See /docs."""

    SYSTEM, APP = "bins", app
