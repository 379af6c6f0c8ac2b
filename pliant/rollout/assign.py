"""Who is served by the canary: a hash of the request's key, so that a client stays with the release that it has.

Keys have fixed positions in [0, 1), and the canary serves those below its share: a share that grows only adds keys.
The position depends on a secret of the trial as well (`salt`): nobody can choose a key by the release that he wants, and
not always the same clients try what is new. It is the same in every process and under every version of Python.
"""

from __future__ import annotations

from hashlib import blake2b

BITS = 53  # that a float holds exactly


def position(salt: str, key: str, purpose: str = "canary") -> float:
    """Return the position of a key in [0, 1) under the secret `salt`; positions for two purposes are independent.

    A request without a key needs one from the caller, such as its number. `purpose` has at most 16 bytes.
    """
    content = salt.encode("utf-8", "surrogatepass")
    content = len(content).to_bytes(8, "big") + content + key.encode("utf-8", "surrogatepass")
    digest = blake2b(content, digest_size=8, person=purpose.encode()).digest()
    return int(int.from_bytes(digest, "big") >> (64 - BITS)) / float(1 << BITS)


def is_copied(salt: str, key: str, share: float) -> bool:
    """Return whether a copy of the request goes to the challenger in shadow, which gets `share` of them."""
    return position(salt, key, "shadow") < share
