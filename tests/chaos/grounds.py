"""The four services of chaos: a small model of each in a registry, and a request for it."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from serving.settings import Settings
from tests.fixtures.bins import published as bins
from tests.fixtures.cascade import published as cascade
from tests.fixtures.clients import image_body
from tests.fixtures.packing import published as packing
from tests.fixtures.tokens import published as tokens

OFTEN = {"refresh_seconds": 2.0, "launch_limit": 5.0}


@dataclass(frozen=True)
class Ground:
    """`publish` fills the registry in a folder; `settings` are the service's; a request is path and body."""

    publish: Callable[[Path], object]
    settings: Callable[..., Settings]
    path: str
    body: bytes

    def request(self) -> bytes:
        """Return the bytes of a request that asks for the connection to be closed."""
        head = (
            f"POST {self.path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
        )
        return f"{head}content-length: {len(self.body)}\r\n\r\n".encode() + self.body


def _chat() -> bytes:
    return json.dumps(
        {"model": packing.NAME, "messages": [{"role": "user", "content": "the old house"}], "max_tokens": 16}
    ).encode()


GROUNDS: Mapping[str, Ground] = {
    "tokens": Ground(
        lambda folder: tokens.publish_all(folder, f"cpu-{platform.machine()}-1t"),
        lambda folder, **more: tokens.settings_for(folder, **more),
        "/v1/predict",
        image_body(deadline=5.0),
    ),
    "bins": Ground(
        lambda folder: bins.publish_tiny(bins.MlflowPublisher(folder), "colours"),
        bins.settings_for,
        "/predict",
        json.dumps({"inputs": "the large cats"}).encode(),
    ),
    "cascade": Ground(
        lambda folder: cascade.publish_tiny(cascade.MlflowPublisher(folder)),
        cascade.settings_for,
        "/v1/predict",
        json.dumps({"task": "colours", "texts": [cascade.UNSURE], "deadline": 5.0}).encode(),
    ),
    "packing": Ground(
        lambda folder: packing.publish_tiny(packing.MlflowPublisher(folder)),
        packing.settings_for,
        "/v1/chat/completions",
        _chat(),
    ),
}
