"""The settings that say who may call a service, and the checks before one starts."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import Protocol

from pliant.errors import InputError
from pliant.serving.http.access.access import Access
from pliant.serving.http.access.certificate import check_certificate
from pliant.serving.http.access.hosts import KnownHosts, check_address, is_loopback
from pliant.serving.http.access.key_file import KeySettings, key_source


class AccessSettings(KeySettings, Protocol):
    @property
    def host(self) -> str: ...
    @property
    def open(self) -> bool: ...
    @property
    def allowed_hosts(self) -> str: ...
    @property
    def tls_cert(self) -> Path | None: ...
    @property
    def tls_key(self) -> Path | None: ...
    @property
    def trusted_proxies(self) -> str: ...


def check_access(settings: AccessSettings) -> None:
    """Raise `InputError` for keys, a certificate or addresses that are not valid, and for an open door that nobody wants."""
    check_address(settings.host)
    for proxy in names(settings.trusted_proxies):
        _check_proxy(proxy)
    check_certificate(settings.tls_cert, settings.tls_key)
    if key_source(settings) is None and not settings.open and not is_loopback(settings.host):
        limit = "an address of this machine alone, such as 127.0.0.1, as the service has no keys: make some with "
        raise InputError("host", settings.host, f"{limit}`pliant keys add --tenant NAME`, or say --open")


def access_of(settings: AccessSettings) -> Access:
    """Return who may call a service. Raises `InputError` for keys that are not valid."""
    hosts = KnownHosts(settings.host, names(settings.allowed_hosts))
    return Access(hosts, key_source(settings), settings.open)


def names(text: str) -> list[str]:
    """Return the names of a list that is separated by commas."""
    return [name for part in text.split(",") if (name := part.strip())]


def _check_proxy(proxy: str) -> None:
    try:
        ip_network(proxy, strict=False)
    except ValueError:
        limit = "an address or a network, such as 10.0.0.7 or 10.0.0.0/24"
        raise InputError("trusted proxy", repr(proxy), limit) from None
