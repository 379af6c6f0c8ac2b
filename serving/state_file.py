"""Small files in which a service keeps what it knows for its next start: whole or not at all, and never worth an error."""

from __future__ import annotations

import json
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from pliant.serving.unwritten import Writing

logger = logging.getLogger("pliant.serving")


class StateFile:
    """A JSON object in a file. Whatever the disk does is logged, once for each kind of trouble, and serving goes on."""

    def __init__(self, path: Path) -> None:
        self.path, self._trouble = path, ""
        self._writing = Writing(path.parent.name, path)

    def write(self, content: dict[str, Any]) -> bool:
        """Replace the file, and return whether that succeeded; if not, it is as it was."""
        draft = self.path.with_name(f".{self.path.name}-{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(json.dumps(content), encoding="utf-8")
            draft.replace(self.path)
        except OSError as error:
            self._writing.failed(f"{self.path} cannot be written: {error.strerror}; serving goes on")
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            return False
        self._writing.succeeded()
        return True

    def read(self) -> dict[str, Any] | None:
        """Return the content; None where there is no file, or one that cannot be read."""
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self._warn(f"{self.path} cannot be read, and is begun anew: {error}")
            return None
        if isinstance(content, dict):
            return content
        self._warn(f"{self.path} holds no object, and is begun anew")
        return None

    def remove(self) -> None:
        """Remove the file, if there is one."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            self._warn(f"{self.path} cannot be removed: {error.strerror}")

    def _warn(self, trouble: str) -> None:
        if trouble != self._trouble:
            logger.warning("%s", trouble)
        self._trouble = trouble
