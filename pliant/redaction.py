"""Takes secrets out of text that people get to see: answers, logs, messages, tracebacks. Knows addresses, no registry.

A secret is what stands before the host of an address, the value of a query's parameter that is called like a secret
(`token`, `access_key`, `password`, ...), what follows `Bearer` or `Basic`, and the value of an environment variable that
is called like one.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import traceback
from functools import lru_cache
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

MASK = "***"
LEAST = 4  # characters of a secret that is masked wherever it stands: shorter ones are parts of common words
LONGEST = 100_000  # characters of a text that are looked through; what follows is cut off

_NAME = (
    r"(?:token|passw(?:or)?d|passwd|pwd|secret|api[_-]?key|access[_-]?key|private[_-]?key|auth|credential|signature)"
)
_USER = re.compile(r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]*://)([^\s'\"<>]{0,500})@")
_FIELD = re.compile(
    rf"([\w.-]{{0,40}}{_NAME}[\w.-]{{0,40}}\s?=\s?|[?&;](?:key|sig|pass|sas)=)([^\s&;'\"<>#)\]}}]+)", re.IGNORECASE
)
_SCHEME = re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9+/=._~-]{8,}", re.IGNORECASE)
_VARIABLE = re.compile(r"(^|_)(PASSWORD|PASSWD|TOKEN|SECRET|API_KEY|ACCESS_KEY|CREDENTIAL)($|_)")
_ADDRESSES = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI", "PLIANT_REGISTRY_URI", "PLIANT_ARTIFACT_ROOT")


def redact(text: str) -> str:
    """Return the text with every secret in it replaced by ***. A text without any is returned as it is."""
    if len(text) > LONGEST:
        text = text[:LONGEST] + "..."
    for secret in _configured(tuple((name, os.environ[name]) for name in _names(frozenset(os.environ)))):
        if secret in text:
            text = text.replace(secret, MASK)
    if "://" in text:
        text = _USER.sub(rf"\1{MASK}@", text)
    if "=" in text:
        text = _FIELD.sub(rf"\1{MASK}", text)
    return _SCHEME.sub(rf"\1 {MASK}", text)


@lru_cache(maxsize=8)
def _names(variables: frozenset[str]) -> tuple[str, ...]:
    """Return the environment's variables that are called like a secret, or hold an address."""
    return tuple(sorted(name for name in variables if name in _ADDRESSES or _VARIABLE.search(name)))


@lru_cache(maxsize=8)
def _configured(variables: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Return the secrets in these variables, the longest first, since one may be a part of another."""
    secrets: set[str] = set()
    for name, value in variables:
        secrets |= secrets_of(value) if name in _ADDRESSES else {value}
    return tuple(sorted((secret for secret in secrets if len(secret) >= LEAST), key=lambda item: (-len(item), item)))


def secrets_of(address: str) -> set[str]:
    """Return the password in an address, and the values in its query that are called like secrets, also decoded."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return set()
    _, at, _ = parts.netloc.rpartition("@")
    before = parts.netloc.rpartition("@")[0] if at else ""
    secrets = {before.partition(":")[2] or before}
    secrets |= {match[2] for match in _FIELD.finditer(f"?{parts.query}")}
    return {form for secret in secrets if secret for form in (secret, unquote(secret))}


def install() -> None:
    """Redact what this process writes from now on: records of every logger, and tracebacks of what nobody catches."""
    factory = logging.getLogRecordFactory()
    if getattr(factory, "redacts", False):
        return

    def make(*args: Any, **kwargs: Any) -> logging.LogRecord:
        return redact_record(factory(*args, **kwargs))

    def show_of_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and not issubclass(args.exc_type, SystemExit):
            _show(args.exc_type, args.exc_value, args.exc_traceback)

    make.redacts = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(make)
    sys.excepthook, threading.excepthook = _show, show_of_thread


def redact_record(record: logging.LogRecord) -> logging.LogRecord:
    """Redact the message, the arguments and the traceback of a record, and return it."""
    _redact_message(record)
    if record.exc_info and record.exc_info[0] is not None:
        # As text: a handler that got the exception itself would write its message, and those of its causes.
        record.exc_text = redact("".join(traceback.format_exception(*record.exc_info))).rstrip("\n")
        record.exc_info = None
    return record


def _redact_message(record: logging.LogRecord) -> None:
    """Redact a message in its arguments, which some formatters read, and where that does not do, as a whole."""
    try:
        message = record.getMessage()
    except Exception:  # a record with too few arguments: the handler reports it
        return
    redacted = redact(message)
    if redacted == message:
        return
    if isinstance(record.args, tuple):
        args = tuple(redact(value) if isinstance(value, str) else value for value in record.args)
        if str(record.msg) % args == redacted:
            record.args = args
            return
    record.msg, record.args = redacted, ()


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    sys.stderr.write(redact("".join(traceback.format_exception(kind, error, trace))))
