"""Why MLflow, its server or its database refuse, as part of a sentence for a person, without pages of HTML and traces."""

from __future__ import annotations

import os
import re
from http import HTTPStatus
from urllib.parse import urlsplit

USER, PASSWORD, TOKEN = "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"
_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_PAGE = re.compile(r"\.? Response body: '\s*(?:<.*)?$", re.DOTALL)
"""What MLflow appends of an answer that is no JSON: proxies answer with pages."""
_UNKNOWN = "password authentication failed"
"""What Postgres says."""
_AWAY = re.compile(r"failed with error code (50[234]) |too many (50[234]) error responses")
"""What MLflow's client says of a proxy without its server, and of a server without its database."""


def is_missing(error: Exception) -> bool:
    """Whether the registry answered that something is not there."""
    code = getattr(error, "error_code", "")
    gone = isinstance(error, FileNotFoundError) or "No such file or directory" in str(error)
    return _status(error) == HTTPStatus.NOT_FOUND or gone or code in ("RESOURCE_DOES_NOT_EXIST", "NOT_FOUND")


def is_refused(error: Exception) -> bool:
    """Whether the registry answered that it does not let this user in, or not do that."""
    code = getattr(error, "error_code", "")
    return _status(error) in _REFUSED or code in ("UNAUTHENTICATED", "PERMISSION_DENIED") or _UNKNOWN in str(error)


def reason(error: Exception, uri: str) -> str:
    """Return why, in one line. `uri`: the registry's address."""
    if _UNKNOWN in str(error):
        return "its database does not accept the name and the password"
    if is_refused(error):
        forbidden = _status(error) == HTTPStatus.FORBIDDEN or getattr(error, "error_code", "") == "PERMISSION_DENIED"
        return "it lets this user in, but not do that (403)" if forbidden else f"it {_unknown_user(uri)} (401)"
    if match := _AWAY.search(str(error)):
        return f"it answers with {match[1] or match[2]}: what is behind it, such as its database, may be gone"
    return _PAGE.sub("", (str(error).splitlines() or [type(error).__name__])[0])


def _unknown_user(uri: str) -> str:
    """Return what is wrong with the name and the password. Those in the address come before the variables', as in MLflow."""
    from mlflow.utils.credentials import read_mlflow_creds

    if urlsplit(uri).username is not None:
        return "does not accept the name and the password in its address"
    if all(read_mlflow_creds()):
        return f"does not accept the name and the password of {USER} and {PASSWORD}"
    if os.environ.get(TOKEN):
        return f"does not accept {TOKEN}"
    return f"asks for a name and a password: set {USER} and {PASSWORD}"


def _status(error: Exception) -> int | None:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None
