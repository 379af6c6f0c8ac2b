"""What a trial has to know of a system's answers."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

A = TypeVar("A", contravariant=True)


class Judge(Protocol[A]):
    """Compares answers of a system, each of which is one to a whole request."""

    def utility(self, answer: A) -> float | None:
        """Return what an answer is worth without its label being known, from 0 to 1; None: not known."""

    def comparable(self, champion: A, challenger: A) -> bool:
        """Return whether what both answers are worth was measured alike."""

    def agree(self, champion: A, challenger: A) -> bool | None:
        """Return whether both answers say the same; None: it cannot be said."""

    def late(self, answer: A) -> bool | None:
        """Return whether the answer missed its deadline; None: there is none."""

    def labels(self, answer: A) -> dict[str, Any]:
        """Return what each part of an answer said, by the id under which its label may be reported; may be empty."""

    def failure(self, answer: A) -> Exception | None:
        """Return why an answer that has begun did not come to its end; None if it did."""
