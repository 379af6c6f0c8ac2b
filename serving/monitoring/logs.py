"""Installs the form of the log in a process of a service: lines of text, or of JSON where PLIANT_LOG_FORMAT says so.

What passes through Python's logging gets the form, whoever writes it: our lines, uvicorn's, BentoML's, MLflow's, warnings,
and tracebacks of what nobody catches. What a library prints past logging stays as it is.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

from pliant.redaction import redact
from pliant.serving.request_context import request_fields

FORMATS = ("text", "json")
VARIABLE = "PLIANT_LOG_FORMAT"
logger = logging.getLogger("pliant.serving")

LEFT_OUT = ("levelname_bracketed", "component", "trace_msg", "request_id", "service_name", "color_message", "taskName")
"""What BentoML and uvicorn add to records for their own texts; BentoML's `request_id` is that of a span."""


class JsonLines(JsonFormatter):
    """Writes time (RFC 3339, UTC), level, logger, message and process (its number), then what is known of these.

    `request_id` and `tenant` of the request that was being handled; `exception`, a traceback, and `stack`; and whatever a
    record has besides. Secrets are masked in all texts.
    """

    def __init__(self) -> None:
        names = {"exc_info": "exception", "stack_info": "stack"}
        super().__init__(reserved_attrs=[*RESERVED_ATTRS, *LEFT_OUT], rename_fields=names)

    def add_fields(self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]) -> None:
        """Fill `log_data`, in the order in which a person reads it."""
        log_data["time"] = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        log_data["level"], log_data["logger"] = record.levelname, record.name
        log_data["message"], log_data["process"] = record.message, record.process
        log_data.update(request_fields())
        super().add_fields(log_data, record, message_dict)

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        """Return the fields with secrets masked. Records of device processes come without that."""
        return {name: redact(value) if isinstance(value, str) else value for name, value in log_data.items()}


def install(environment: Mapping[str, str] = os.environ) -> None:
    """Let every handler that writes to a stream write JSON, if the environment says so; else do nothing.

    It may be called again, for handlers that libraries have added since. Where no handler is, one is added for standard
    error. Records are redacted before they get here (pliant/redaction.py), and again here.
    """
    if environment.get(VARIABLE) != "json":
        return
    if not logging.root.handlers:
        logging.root.addHandler(logging.StreamHandler())
    formatter = JsonLines()
    for each in (logging.root, *logging.root.manager.loggerDict.values()):
        for handler in getattr(each, "handlers", ()):  # a place holder between two loggers has none
            if isinstance(handler, logging.StreamHandler):
                handler.setFormatter(formatter)
    logging.captureWarnings(True)
    sys.excepthook, threading.excepthook = _log_uncaught, _log_uncaught_of_thread


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    logger.critical("the process ends by an exception", exc_info=(kind, error, trace))


def _log_uncaught_of_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and not issubclass(args.exc_type, SystemExit):
        trace = args.exc_traceback
        logger.critical("a thread ends by an exception", exc_info=(args.exc_type, args.exc_value, trace))
