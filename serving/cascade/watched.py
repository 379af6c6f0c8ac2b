"""What the watch sees of an answer of the cascade: its text's length, the level that answered, class and confidence.

Of a sample of early answers it also sees whether the large model agrees (serving/cascade/agreement.py).
"""

from __future__ import annotations

from typing import Any

from pliant.serving.cascade.reading import Handler
from pliant.serving.watch.seen import Seen
from pliant.serving.watch.streams import CONFIDENCES, LENGTHS, confidence_of, labels, numbers

AGREEMENT = ("differs", "agrees")
COMPARED = 0.1  # of the burn-in: comparisons are a small share of the answers
LEAST_COMPARED = 200


class CascadeWatch:
    """Counts answers in `seen`."""

    def __init__(self, seen: Seen, burn_in: int) -> None:
        self._seen, self._burn_in = seen, burn_in
        self._lengths, self._confidences = numbers(LENGTHS, burn_in), numbers(CONFIDENCES, burn_in)

    def count(self, task: str, handler: Handler, text: tuple[str, str | None], content: dict[str, Any]) -> None:
        """Count the answer `content` to one text."""
        cascade, candidate = handler.cascade, content["candidate"]
        self._seen.number(f"characters of {task}", len(text[0]) + len(text[1] or ""), self._lengths)
        self._seen.number(confidence_of(task), content["confidence"], self._confidences)
        if cascade.classes:
            self._seen.label(
                f"class of {task}", cascade.classes.index(content["label"]), labels(cascade.classes, self._burn_in)
            )
        levels = [level.name for level in cascade.levels]
        if content["level"] in levels and len(levels) > 1:
            name = f"level of {task} by {candidate}"
            self._seen.label(name, levels.index(content["level"]), labels(levels, self._burn_in))

    def agreed(self, task: str, candidate: str, agrees: bool) -> None:
        """Count whether the large model agrees with an early answer."""
        burn_in = min(self._burn_in, max(LEAST_COMPARED, round(COMPARED * self._burn_in)))
        name = f"agreement of {task} by {candidate}"
        self._seen.label(name, AGREEMENT.index("agrees" if agrees else "differs"), labels(AGREEMENT, burn_in))
