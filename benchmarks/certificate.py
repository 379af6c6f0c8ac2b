"""A certificate for this machine alone, signed by itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files in PEM. Clients trust `path`."""

    host: str
    path: Path
    key: Path


def certificate(folder: Path, days: float = 1.0) -> Certificate:
    """Make a certificate for 127.0.0.1 that is valid for so many days from now on; below 0 it has expired so long ago."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    end = now + timedelta(days=days)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "pliant stack")])
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, end) - timedelta(days=1))
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(parents=True, exist_ok=True)
    path, secret = folder / "certificate.pem", folder / "key.pem"
    path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    secret.touch(mode=0o600)
    form = serialization.PrivateFormat.PKCS8
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return Certificate(HOST, path, secret)
