"""The certificate of a service of its own: whether its files fit together, and until when it is valid."""

from __future__ import annotations

import logging
import ssl
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from pliant.errors import InputError
from pliant.serving.http.access.metrics import CertificateMetrics

DAY = 86_400.0  # seconds
WARN_DAYS = 14.0  # before its end; deploy/monitoring/alerts.yaml has the same
RENEW = "replace its file and that of its key, and start the service again"

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


def show_certificate(path: Path, metrics: CertificateMetrics, now: float | None = None) -> None:
    """Show when the certificate expires, and log what is wrong with it. `now`: seconds since 1970, by default the time."""
    now, valid = time.time() if now is None else now, validity(path)
    metrics.expires(valid.end)
    if fault := valid.fault(path, now):
        logger.log(logging.WARNING if valid.begin <= now < valid.end else logging.ERROR, "%s", fault)


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
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key, lambda: "")  # else OpenSSL asks for a password in the terminal
    except (OSError, ssl.SSLError) as error:
        raise InputError(
            "tls_cert", certificate, f"a certificate in PEM, and {key} its key ({_reason(error)})"
        ) from None


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        unfit = error.reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH")
        return "they do not fit together" if unfit else "one of them is no PEM, or has a password"
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is none"


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
