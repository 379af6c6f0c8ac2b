"""MLflow's client of a registry: its address, how it is opened, what is looked up with it, and how its failures are said.

MLflow itself creates a database where there is none, and tries one or a server that does not answer for minutes, so these
are looked for first. What is looked up and is
not there is None and no error. Failures are `RegistryError`s of one sentence, without pages of HTML and traces.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from http import HTTPStatus
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import SplitResult, urlsplit
from urllib.request import url2pathname, urlopen

from pliant.errors import RefusedError, RegistryError, UnreachableError
from pliant.redaction import redact
from pliant.registry.package import Published

CONNECT_SECONDS = 5
DIGEST, KIND = "pliant.digest", "pliant.kind"
"""Tags of a version: what its artifact is known by, and what it is."""
USER, PASSWORD, TOKEN = "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"
_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_PAGE = re.compile(r"\.? Response body: '\s*(?:<.*)?$", re.DOTALL)
"""What MLflow appends of an answer that is no JSON: proxies answer with pages."""
_UNKNOWN = "password authentication failed"
"""What Postgres says."""
_AWAY = re.compile(r"failed with error code (50[234]) |too many (50[234]) error responses")
"""What MLflow's client says of a proxy without its server, and of a server without its database."""

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


def client_of(address: str) -> Any:
    """Return MLflow's client. Raises `RegistryError` for a file that cannot be used, and what SQLAlchemy raises."""
    if not address.startswith("http"):
        path = database(address)
        if path is not None:
            _check_access(path)
        if path is None or path.is_file():  # or a file would be made
            _connect(address)
    from mlflow import MlflowClient

    return MlflowClient(address, address)


def _check_access(path: Path) -> None:
    if path.exists() and not os.access(path, os.R_OK):
        raise RegistryError(f"the registry's database {path} cannot be read by this user: Permission denied")
    if not path.exists() and not os.access(path.parent, os.W_OK):
        raise RegistryError(f"the registry's folder {path.parent} cannot be written by this user: Permission denied")


def has_all_tables(uri: str) -> bool:
    """Whether a registry's database has all of MLflow's tables, in MLflow's present form; a server sees to its own.

    Opening one that has not makes them, also beside another process that is making them, and then fails. Raises
    `RegistryError` where nothing answers or may be read, and what SQLAlchemy raises.
    """
    check_reachable(uri, create=False)
    if uri.startswith("http"):
        return True
    if (path := database(uri)) is not None:
        _check_access(path)
    from mlflow.store.db.utils import _get_latest_schema_revision, _get_schema_version

    return bool(_get_schema_version(_engine(current_address(uri))) == _get_latest_schema_revision())


@lru_cache(maxsize=8)
def _connect(address: str) -> None:
    """Connect to a database, and close the connection. Only what succeeded is remembered: MLflow keeps connections then."""
    _engine(address).connect().close()


def _engine(address: str) -> Any:
    """Return SQLAlchemy's engine of a database, which keeps no connection."""
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    limit = {"connect_timeout": CONNECT_SECONDS} if address.startswith("postgres") else {}
    return create_engine(address, poolclass=NullPool, connect_args=limit)


def ensure_model(client: Any, name: str, about: str | None = None) -> None:
    """Create a registered model where it is missing."""
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name, description=about)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def find_model(client: Any, name: str) -> Any:
    """Return a registered model as MLflow's entity, or None."""
    return unless_missing(lambda: client.get_registered_model(name))


def find_version(client: Any, name: str, number: int) -> Any:
    """Return a version as MLflow's entity, or None."""
    return unless_missing(lambda: client.get_model_version(name, str(number)))


def find_versions(client: Any, name: str) -> list[Any]:
    """Return all versions of a model as MLflow's entities."""
    return all_pages(lambda token: client.search_model_versions(f"name='{name}'", page_token=token))


def all_pages(ask: Callable[[str | None], Any]) -> list[Any]:
    """Return the entries of all pages; `ask` gives the page of a token."""
    token, entries = None, []
    while token != "":
        page = ask(token)
        entries += list(page)
        token = page.token or ""
    return entries


def unless_missing(ask: Callable[[], Any]) -> Any:
    """Return the answer; None if the registry answers that it has no such thing."""
    from mlflow.exceptions import MlflowException

    try:
        return ask()
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None


def published_of(version: Any) -> Published:
    """Return MLflow's version as ours. Its number is a text over HTTP, else a number."""
    number, tags = int(version.version), dict(version.tags)
    stamp = getattr(version, "creation_timestamp", None)
    created = datetime.fromtimestamp(stamp / 1000, UTC).isoformat(timespec="seconds") if stamp else ""
    return Published(version.name, number, tags.get(DIGEST, ""), f"models:/{version.name}/{number}", tags, created)


@contextmanager
def registry_errors(uri: str, failed: str) -> Iterator[None]:
    """Raise whatever MLflow, its database or the network raise as a `RegistryError` that begins with `failed`.

    It is an `UnreachableError` unless the registry answered that something is not there, and a `RefusedError` where it does
    not let this user in. What caused it is not chained: its message may hold the address with its password, and a
    traceback would show it.
    """
    from alembic.util import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, CommandError, OSError) as error:
        gone = isinstance(error, FileNotFoundError) or "No such file or directory" in str(error)
        known = getattr(error, "error_code", "") in ("RESOURCE_DOES_NOT_EXIST", "NOT_FOUND")
        missing = gone or known or _status(error) == HTTPStatus.NOT_FOUND
        kind = RegistryError if missing else RefusedError if _is_refused(error) else UnreachableError
        raise kind(f"{failed} at {shown(uri)}: {reason(error, uri)}") from None


def _is_refused(error: Exception) -> bool:
    """Whether the registry answered that it does not let this user in, or not do that."""
    code = getattr(error, "error_code", "")
    return _status(error) in _REFUSED or code in ("UNAUTHENTICATED", "PERMISSION_DENIED") or _UNKNOWN in str(error)


def reason(error: Exception, uri: str) -> str:
    """Return why, in one line. `uri`: the registry's address."""
    if _UNKNOWN in str(error):
        return "its database does not accept the name and the password"
    if _is_refused(error):
        forbidden = _status(error) == HTTPStatus.FORBIDDEN or getattr(error, "error_code", "") == "PERMISSION_DENIED"
        if forbidden:
            return "it lets this user in, but not do that (403)"
        from mlflow.utils.credentials import read_mlflow_creds

        if urlsplit(uri).username is not None:  # comes before the variables, as in MLflow
            return "it does not accept the name and the password in its address (401)"
        if all(read_mlflow_creds()):
            return f"it does not accept the name and the password of {USER} and {PASSWORD} (401)"
        if os.environ.get(TOKEN):
            return f"it does not accept {TOKEN} (401)"
        return f"it asks for a name and a password: set {USER} and {PASSWORD} (401)"
    if match := _AWAY.search(str(error)):
        return f"it answers with {match[1] or match[2]}: what is behind it, such as its database, may be gone"
    return _PAGE.sub("", (str(error).splitlines() or [type(error).__name__])[0])


def _status(error: Exception) -> int | None:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


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
