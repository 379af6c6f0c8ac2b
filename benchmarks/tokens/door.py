"""Pictures beyond what HTTP carries: a real service answers, whose device computes nothing, so its front door is full."""

from __future__ import annotations

import base64
import json

from benchmarks.door import overload
from benchmarks.door.overload import Overload
from benchmarks.endpoint import launched
from benchmarks.tokens.host import SERVICE, pictures
from flows.tokens.stages import Bundle
from pliant.progress import Progress, silent

DEADLINE = 0.5  # seconds
PICTURE = "JPEG 224 x 224"


def measure(bundle: Bundle, seconds: float, rounds: int, progress: Progress = silent) -> Overload:
    """Send the champion's service, without its device's work, the same picture at several rates."""
    image = base64.b64encode(pictures(bundle.backbone.image_size)[PICTURE]).decode()
    fields = {"image": image, "task": bundle.tasks[0].name, "deadline": DEADLINE}
    message = overload.post("/v1/predict", json.dumps(fields).encode(), DEADLINE)
    with launched("tokens", {"any_profile": True, "refresh_seconds": 0.0}, SERVICE) as service:
        service.wait_until_ready()
        overload.leave_a_core(service.process.pid)
        return overload.measure(service.url, message, seconds, rounds, progress)
