"""What a trial compares of two answers of the bins system."""

from __future__ import annotations

from typing import Any

import numpy as np

from pliant.serving.bins.answer import shares
from pliant.serving.bins.bodies import Answer

SAME = 0.98  # cosine of two embeddings that say the same


class BinsJudge:
    """Compares the scores of classifiers, and the directions of embeddings."""

    def utility(self, answer: Answer) -> float | None:
        """Return the mean probability of the best class; None for embeddings, whose worth nobody knows."""
        if not answer.encoder.classes:
            return None
        return float(np.mean([shares(output).max() for output in answer.outputs]))

    def comparable(self, champion: Answer, challenger: Answer) -> bool:  # noqa: ARG002
        """Return True."""
        return True

    def agree(self, champion: Answer, challenger: Answer) -> bool | None:
        """Return whether all texts have the same best class, or embeddings of nearly the same direction."""
        pairs = list(zip(champion.outputs, challenger.outputs, strict=True))
        if champion.encoder.classes and champion.encoder.classes == challenger.encoder.classes:
            return all(int(first.argmax()) == int(second.argmax()) for first, second in pairs)
        if champion.encoder.classes or any(first.shape != second.shape for first, second in pairs):
            return None
        return all(_cosine(first, second) >= SAME for first, second in pairs)

    def late(self, answer: Answer) -> bool | None:  # noqa: ARG002
        """Return None: what is late gets no answer."""
        return None

    def labels(self, answer: Answer) -> dict[str, Any]:  # noqa: ARG002
        """Return nothing: there are no labels."""
        return {}

    def failure(self, answer: Answer) -> Exception | None:  # noqa: ARG002
        """Return None: an answer is there as a whole or not at all."""
        return None


def _cosine(first: Any, second: Any) -> float:
    return float(np.dot(first.ravel(), second.ravel()) / (np.linalg.norm(first) * np.linalg.norm(second) + 1e-12))
