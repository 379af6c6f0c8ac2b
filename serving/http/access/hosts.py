"""The names under which a service is called, and the addresses of this machine.

A page of any website can let its own name point to 127.0.0.1 (DNS rebinding), and then read what a service on the visitor's
machine answers. Its requests name that website in their Host header, so only known names are answered.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address

from pliant.errors import InputError

ANY_NAME = "*"
_LOCAL = "localhost"
CACHED = 64  # Host headers whose judgement is kept, as the same few come again and again


class KnownHosts:
    """The names of one service. `bound` is the address that it listens on, `allowed` are further names.

    `*` allows every name, `*.example.org` every name below. A service that listens on all addresses may be called by any
    address: only names can be rebound.
    """

    def __init__(self, bound: str, allowed: Iterable[str] = ()) -> None:
        names = [name.lower() for name in allowed]
        self._any = ANY_NAME in names
        self._suffixes = tuple(name[1:] for name in names if name.startswith("*."))
        self._names = frozenset((_LOCAL, bound.lower(), *names))
        self._any_address = is_wildcard(bound)
        self.knows = lru_cache(CACHED)(self._knows)
        """Whether the value of a Host header, with or without a port, is a name of this service."""

    def _knows(self, header: str) -> bool:
        name = _name(header)
        if name in self._names or self._any:
            return bool(name)
        return is_loopback(name) or (self._any_address and _is_address(name)) or name.endswith(self._suffixes)


@lru_cache(CACHED)
def is_loopback(host: str) -> bool:
    """Whether an address, or the name localhost, reaches this machine alone."""
    try:
        return host == _LOCAL or ip_address(host).is_loopback
    except ValueError:
        return False


def is_wildcard(host: str) -> bool:
    """Whether the address stands for all addresses of the machine."""
    return _is_address(host) and ip_address(host).is_unspecified


def check_address(host: str) -> None:
    """Raise `InputError` unless a service can listen on this: an address, or localhost."""
    if host != _LOCAL and not _is_address(host):
        raise InputError(
            "host", repr(host), "an address of this machine, such as 127.0.0.1, 0.0.0.0 or ::1, or localhost"
        )


def _name(header: str) -> str:
    """Return the name or address in a Host header, in lower case, without port, brackets and the final dot."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].lower().removesuffix(".")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
