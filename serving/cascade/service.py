"""The cascade system as a BentoML service: `bentoml serve pliant.serving.cascade.service:CascadeService`.

What all services share is in serving/bento/hosting.py.
"""

from __future__ import annotations

import bentoml

from pliant.serving.bento.hosting import OPTIONS, HostedService, host_app, with_access
from pliant.serving.cascade.api import create_app, create_root

# Seconds until BentoML gives up a request that nothing else ends: longer than any deadline and any hung launch.
TIMEOUT = 300

app = host_app(create_app)


# At the root, which comes last: the Open Inference Protocol below /v2.
@with_access(app)
@bentoml.asgi_app(create_root(app), path="/")
@bentoml.asgi_app(app, path="/v1")
@bentoml.service(name="pliant_cascade", traffic={"timeout": TIMEOUT}, **OPTIONS)
class CascadeService(HostedService):
    """Classifies texts before a deadline, by a small model if it is confident and by larger ones if not. See /v1/docs."""

    SYSTEM, APP = "cascade", app
