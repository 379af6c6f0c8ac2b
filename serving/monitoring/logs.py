"""Installs the form of the log in a process of a service: lines of text, or of JSON where PLIANT_LOG_FORMAT says so.

What passes through Python's logging gets the form, whoever writes it: our lines, uvicorn's, BentoML's, MLflow's, warnings,
and tracebacks of what nobody catches. What a library prints past logging stays as it is.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from types import TracebackType

FORMATS = ("text", "json")
VARIABLE = "PLIANT_LOG_FORMAT"

logger = logging.getLogger("pliant.serving")


def install(environment: Mapping[str, str] = os.environ) -> None:
    """Let every handler that writes to a stream write JSON, if the environment says so; else do nothing.

    It may be called again, for handlers that libraries have added since. Where no handler is, one is added for standard
    error. Records are redacted before they get here (pliant/redaction.py), and again here.
    """
    if environment.get(VARIABLE) != "json":
        return
    from pliant.serving.monitoring.json_lines import JsonLines

    if not logging.root.handlers:
        logging.root.addHandler(logging.StreamHandler())
    formatter = JsonLines()
    for handler in _stream_handlers():
        handler.setFormatter(formatter)
    logging.captureWarnings(True)
    sys.excepthook, threading.excepthook = _log_uncaught, _log_uncaught_of_thread


def _stream_handlers() -> Iterator[logging.Handler]:
    """Yield the handlers of all loggers that write to a stream."""
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    for each in loggers:
        for handler in getattr(each, "handlers", ()):  # a place holder between two loggers has none
            if isinstance(handler, logging.StreamHandler):
                yield handler


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    logger.critical("the process ends by an exception", exc_info=(kind, error, trace))


def _log_uncaught_of_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and not issubclass(args.exc_type, SystemExit):
        trace = args.exc_traceback
        logger.critical("a thread ends by an exception", exc_info=(args.exc_type, args.exc_value, trace))
