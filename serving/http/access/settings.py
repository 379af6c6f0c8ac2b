"""The settings that say who may call a service and with which certificate, and the checks before one starts."""

from __future__ import annotations

import logging
import ssl
import time
from datetime import UTC, datetime
from ipaddress import ip_network
from pathlib import Path

from cryptography import x509
from prometheus_client import REGISTRY, CollectorRegistry

from pliant.errors import InputError
from pliant.serving.http.access.access import Access, KnownHosts, is_address, is_loopback
from pliant.serving.http.access.keys import key_source
from pliant.serving.monitoring.metric_list import CERTIFICATE, register
from pliant.serving.settings import Settings

DAY = 86_400.0  # seconds
WARN_DAYS = 14.0  # before a certificate's end; deploy/monitoring/alerts.yaml has the same
RENEW = "replace its file and that of its key, and start the service again"

logger = logging.getLogger("pliant.serving")


def check_access(settings: Settings) -> None:
    """Raise `InputError` for keys, a certificate or addresses that are not valid, and for an open door that nobody wants."""
    if settings.host != "localhost" and not is_address(settings.host):
        limit = "an address of this machine, such as 127.0.0.1, 0.0.0.0 or ::1, or localhost"
        raise InputError("host", repr(settings.host), limit)
    for proxy in names(settings.trusted_proxies):
        try:
            ip_network(proxy, strict=False)
        except ValueError:
            limit = "an address or a network, such as 10.0.0.7 or 10.0.0.0/24"
            raise InputError("trusted proxy", repr(proxy), limit) from None
    check_certificate(settings.tls_cert, settings.tls_key)
    if key_source(settings) is None and not settings.open and not is_loopback(settings.host):
        limit = "an address of this machine alone, such as 127.0.0.1, as the service has no keys: make some with "
        raise InputError("host", settings.host, f"{limit}`pliant keys add --tenant NAME`, or say --open")


def access_of(settings: Settings) -> Access:
    """Return who may call a service. Raises `InputError` for keys that are not valid."""
    hosts = KnownHosts(settings.host, names(settings.allowed_hosts))
    return Access(hosts, key_source(settings), settings.open)


def names(text: str) -> list[str]:
    """Return the names of a list that is separated by commas."""
    return [name for part in text.split(",") if (name := part.strip())]


def check_certificate(certificate: Path | None, key: Path | None) -> None:
    """Raise `InputError` unless there is neither, or both are files that fit together. It may have expired."""
    if certificate is None and key is None:
        return
    if certificate is None or key is None:
        raise InputError("tls_cert", certificate or "missing", "given together with tls_key")
    for name, path in (("tls_cert", certificate), ("tls_key", key)):
        try:
            Path(path).read_bytes()
        except OSError as error:
            raise InputError(name, path, f"a file in PEM that can be read ({error.strerror})") from None
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key, lambda: "")  # else OpenSSL asks for a password in the terminal
    except ssl.SSLError as error:
        unfit = error.reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH")
        reason = "they do not fit together" if unfit else "one of them is no PEM, or has a password"
        raise InputError("tls_cert", certificate, f"a certificate in PEM, and {key} its key ({reason})") from None


def show_certificate(path: Path, registry: CollectorRegistry = REGISTRY, now: float | None = None) -> None:
    """Show in a metric when the certificate (the first of its file) expires, and log what is wrong with it, or soon will be.

    `now`: seconds since 1970, by default the present time. Raises `InputError` for a file that holds none.
    """
    now = time.time() if now is None else now
    try:
        first = x509.load_pem_x509_certificates(path.read_bytes())[0]
    except (OSError, ValueError) as error:
        raise InputError("tls_cert", path, f"a certificate in PEM ({error})") from None
    begin, end = first.not_valid_before_utc.timestamp(), first.not_valid_after_utc.timestamp()
    (expiry,) = register(CERTIFICATE, registry).values()
    expiry.labels("service").set(end)
    if now < begin:
        logger.error("the certificate %s is not valid before %s: clients refuse it until then", path, _day(begin))
    elif now >= end:
        logger.error("the certificate %s has expired on %s, and clients refuse it: %s", path, _day(end), RENEW)
    elif end - now < WARN_DAYS * DAY:
        days = (end - now) / DAY
        logger.warning("the certificate %s expires on %s, in %.0f days: %s", path, _day(end), days, RENEW)


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
