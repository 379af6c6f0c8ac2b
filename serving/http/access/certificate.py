"""The certificate of a service of its own: until when it is valid, and a new one that its files hold, without a restart.

uvicorn reads the files once. The context of TLS that it made from them takes others later: connections that come after
that see the new certificate, those that are open stay as they are.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvicorn.config
from cryptography import x509

from pliant.errors import InputError
from serving.http.access.metrics import CertificateMetrics

LOOK_SECONDS = 10.0  # between two looks at the files
DAY = 86_400.0  # seconds
WARN_DAYS = 14.0  # before its end; deploy/monitoring/alerts.yaml has the same
RENEW = "replace its file and that of its key: they are taken without a restart"

logger = logging.getLogger("pliant.serving")


@dataclass(frozen=True, slots=True)
class Validity:
    """From when until when a certificate is valid, in seconds since 1970."""

    begin: float
    end: float

    def fault(self, path: Path, now: float) -> str:
        """Return what is wrong with the certificate, or will be soon, as a sentence; empty if nothing is."""
        if now < self.begin:
            return f"the certificate {path} is not valid before {_day(self.begin)}: clients refuse it until then"
        if now >= self.end:
            return f"the certificate {path} has expired on {_day(self.end)}, and clients refuse it: {RENEW}"
        if self.end - now < WARN_DAYS * DAY:
            return f"the certificate {path} expires on {_day(self.end)}, in {(self.end - now) / DAY:.0f} days: {RENEW}"
        return ""


def validity(path: Path) -> Validity:
    """Return when the certificate of a service is valid: the first of its file. Raises `InputError`."""
    try:
        first = x509.load_pem_x509_certificates(path.read_bytes())[0]
    except (OSError, ValueError) as error:
        raise InputError("tls_cert", path, f"a certificate in PEM ({_reason(error)})") from None
    return Validity(first.not_valid_before_utc.timestamp(), first.not_valid_after_utc.timestamp())


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
            raise InputError(name, path, f"a file in PEM that can be read ({_reason(error)})") from None
    try:
        _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise InputError(
            "tls_cert", certificate, f"a certificate in PEM, and {key} its key ({_reason(error)})"
        ) from None


def _load(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    context.load_cert_chain(certificate, key, lambda: "")  # else OpenSSL asks for a password in the terminal


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        unfit = error.reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH")
        return "they do not fit together" if unfit else "one of them is no PEM, or has a password"
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is none"


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def remembered_contexts() -> Sequence[ssl.SSLContext]:
    """Return what all contexts of TLS that uvicorn makes in this process from now on come into."""
    make, contexts = uvicorn.config.create_ssl_context, list[ssl.SSLContext]()

    def make_and_remember(*values: Any, **named: Any) -> ssl.SSLContext:
        context = make(*values, **named)
        contexts.append(context)
        return context

    uvicorn.config.create_ssl_context = make_and_remember
    return contexts


class CertificateFollower:
    """Gives the contexts what the files hold, as soon as that fits together, and says when it expires."""

    def __init__(
        self,
        certificate: Path,
        key: Path,
        metrics: CertificateMetrics,
        contexts: Sequence[ssl.SSLContext],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock`: seconds since 1970. Raises `InputError` for a certificate that cannot be read."""
        self._certificate, self._key, self._metrics, self._clock = certificate, key, metrics, clock
        self._contexts = contexts
        self._seen, self._said = self._signature(), 0.0
        self._show()

    async def follow(self) -> None:
        """Look at the files every `LOOK_SECONDS` until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Take other files than before, and say once a day what is wrong with the certificate."""
        signature = self._signature()
        if signature != self._seen:
            self._seen = signature
            self._take()
        if self._clock() - self._said >= DAY:
            self._say()

    def _take(self) -> None:
        try:
            check_certificate(self._certificate, self._key)
            for context in self._contexts:
                _load(context, self._certificate, self._key)
            end = self._show().end  # also in here: files may go at any moment, and the next look must come
        except (InputError, OSError) as error:
            logger.error("the former certificate stays in force: %s", error)
            return
        # A warning, since a service's log has no lines below that: whoever replaced the files looks for this one.
        logger.warning("the certificate of %s is in force, until %s", self._certificate, _day(end))

    def _show(self) -> Validity:
        self._validity = validity(self._certificate)
        self._metrics.expires(self._validity.end)
        self._say()
        return self._validity

    def _say(self) -> None:
        self._said = now = self._clock()
        if fault := self._validity.fault(self._certificate, now):
            valid = self._validity.begin <= now < self._validity.end
            logger.log(logging.WARNING if valid else logging.ERROR, "%s", fault)

    def _signature(self) -> tuple[object, ...]:
        return tuple(_state(path) for path in (self._certificate, self._key))


def _state(path: Path) -> tuple[int, int, int] | None:
    """Return what differs after a change of the file; None if it cannot be seen."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
