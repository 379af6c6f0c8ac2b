"""Log records as JSON in ASCII, an object a line, by python-json-logger, which comes with BentoML.

Imported by processes alone that write such lines (serving/monitoring/logs.py).
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

from pliant.redaction import redact
from pliant.serving.request_context import request_fields

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
