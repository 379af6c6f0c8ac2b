"""Checks before MLflow tries whether there is a registry at an address. Knows addresses and settings, imports no MLflow.

MLflow alone would create an empty database where there is none, and retry a server that is gone for minutes.
"""

from __future__ import annotations

import logging
import os
import ssl
import warnings
from collections.abc import Mapping
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import SplitResult, urlsplit
from urllib.request import url2pathname, urlopen

from pliant.errors import RegistryError, UnreachableError
from pliant.redaction import redact

SET = "set MLFLOW_TRACKING_URI to the registry in use"
ADVICE = f"run `pliant train` to make one, or {SET}"

PROBE_SECONDS = 3.0
TRUSTED, UNCHECKED = "MLFLOW_TRACKING_SERVER_CERT_PATH", "MLFLOW_TRACKING_INSECURE_TLS"
CLIENT = "MLFLOW_TRACKING_CLIENT_CERT_PATH"
"""MLflow's variables for TLS, which the probe follows as its client does."""
UNTRUSTED: Mapping[int, str] = {
    9: "compare the clocks of both machines",
    10: "renew it there",
    62: "call the server by a name that is in it",
    64: "call the server by an address that is in it",
}
"""What to do about a certificate, by OpenSSL's X509_V_ERR_ number: not yet valid, expired, of another host or address."""

DEFAULTS: Mapping[str, str] = {
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # by default a server that died holds its client for minutes
}
"""MLflow's own settings, where the user has none."""


def set_defaults() -> None:
    """Make MLflow quiet, and quick to give up. Works best before MLflow is imported, and well enough after."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    logging.getLogger("mlflow").setLevel(os.environ["MLFLOW_LOGGING_LEVEL"].upper())
    warnings.filterwarnings("ignore", module="mlflow")


def database(uri: str) -> Path | None:
    """Return the file of a sqlite address; None for others. Raises `RegistryError` where it ends before its path."""
    address = _split(uri)
    if address.scheme != "sqlite":
        return None
    if "#" in uri or "?" in uri:  # MLflow would look for the artifacts in the folder before it
        raise RegistryError(
            f"the address {uri} has a # or ? in its path, which no address can hold: {SET}, in another folder"
        )
    return Path(address.path[1:])


def current_address(uri: str) -> str:
    """Return the address by which MLflow opens what is there now.

    MLflow keeps connections by address: to a database file that was replaced it would go on talking for ever. So each file
    gets an address of its own for the same path: the bits of its number, as steps of the path that lead nowhere (`/` and
    `./`). For other registries as `driver_address`.
    """
    path = database(uri)
    if path is None or not path.is_file():
        return driver_address(uri)
    head, _, name = uri.rpartition("/")
    steps = "".join("./" if bit == "1" else "/" for bit in f"{path.stat().st_ino:b}")
    return f"{head}/./{steps}{name}"


def driver_address(uri: str) -> str:
    """Return the address with the driver that is installed here, where it names a Postgres database and no driver.

    Raises `RegistryError` where there is none.
    """
    scheme, separator, rest = uri.partition("://")
    kind, _, driver = scheme.partition("+")
    if kind not in ("postgres", "postgresql") or not separator:
        return uri
    for module, name in ((driver, driver),) if driver else (("psycopg", "psycopg"), ("psycopg2", "psycopg2")):
        if find_spec(module) is not None:
            return f"postgresql+{name}://{rest}"
    wanted = driver or "psycopg"
    raise RegistryError(
        f"the registry at {shown(uri)} is a Postgres database, and its driver {wanted} is missing here: "
        "pip install -e '.[postgres]'"
    )


def is_local(uri: str) -> bool:
    """Whether an artifact's address is a folder of this machine."""
    return _split(uri).scheme in ("", "file")


def local_folder(uri: str) -> Path:
    """Return the folder of an artifact's address for which `is_local` holds."""
    return Path(url2pathname(_split(uri).path)) if _split(uri).scheme else Path(uri)


def check_reachable(uri: str, create: bool) -> None:
    """Raise `RegistryError` if the server does not answer or, unless one is to be created, the database is not there."""
    address = _split(uri)
    if (path := database(uri)) is not None:
        if create:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise RegistryError(f"the registry's folder {path.parent} cannot be made: {error.strerror}") from error
        elif not path.is_file():
            raise UnreachableError(f"there is no registry database at {path.absolute()}: {ADVICE}")
    if address.scheme not in ("http", "https"):
        return
    context = _trust() if address.scheme == "https" else None
    health = f"{address.scheme}://{address.netloc.rpartition('@')[2]}{address.path.rstrip('/')}/health"
    try:
        urlopen(health, timeout=PROBE_SECONDS, context=context).close()
    except HTTPError:
        return  # it answers, whether or not it knows this path
    except (OSError, ValueError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            advice = UNTRUSTED.get(reason.verify_code, f"{TRUSTED} names the file of those to trust")
            invalid = f"the certificate of the MLflow server at {shown(uri)} is not valid ({reason.verify_message})"
            raise UnreachableError(f"{invalid}: {advice}") from None
        raise UnreachableError(f"no MLflow server answers at {shown(uri)} ({reason}): start it, or {SET}") from None


def _trust() -> ssl.SSLContext:
    """Return which certificates are trusted: those that MLflow's client trusts. Raises `RegistryError`."""
    import certifi

    if os.environ.get(UNCHECKED, "").lower() in ("true", "1"):
        return ssl._create_unverified_context()  # as the user says
    named = next((name for name in (TRUSTED, "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE") if os.environ.get(name)), None)
    path = Path(os.environ[named] if named else certifi.where())
    file, folder = (None, path) if path.is_dir() else (path, None)
    try:
        context = ssl.create_default_context(cafile=file, capath=folder)
    except OSError as error:
        what = named or "the list of certificates"
        raise RegistryError(f"{what} is {path}, but must be a file of certificates in PEM ({error.strerror})") from None
    if own := os.environ.get(CLIENT):
        try:
            context.load_cert_chain(own)
        except OSError as error:
            raise RegistryError(
                f"{CLIENT} is {own}, but must be a certificate with its key ({error.strerror})"
            ) from None
    return context


def shown(uri: str) -> str:
    """Return the address without user name, password and what its query holds of secrets."""
    address = _split(uri)
    return redact(uri.replace(address.netloc, address.netloc.rpartition("@")[2], 1) if address.netloc else uri)


def _split(uri: str) -> SplitResult:
    try:
        return urlsplit(uri)
    except ValueError as error:
        raise RegistryError(f"{uri} is no address of a registry ({error}): {SET}") from None
