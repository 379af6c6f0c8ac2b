"""What training starts from where the settings leave it open: a pretrained model if one can be had. Knows no system.

The data that comes with Pliant is there to try it, quickly and without a network: its models start from random weights.
"""

from __future__ import annotations

import sys
from functools import cache

EMBEDDED = ("docstrings", "digits:")
"""What addresses of the data that comes with Pliant begin with."""


def is_embedded(address: str) -> bool:
    """Whether the address is one of the data that comes with Pliant."""
    return address.startswith(EMBEDDED)


@cache
def pretrained() -> str:
    """Return the address of a pretrained encoder; empty where none can be had, which is said in one line, once."""
    from pliant.training.loading import find_encoder

    address, reason = find_encoder()
    sentence = (
        f"starting from the pretrained model {address}" if address else f"no pretrained model can be had ({reason})"
    )
    advice = ": starting from random weights, which need many more texts; name a model's folder (path:FOLDER)"
    print(f"Start: {sentence}{'' if address else advice}.", file=sys.stderr)  # noqa: T201
    return address
