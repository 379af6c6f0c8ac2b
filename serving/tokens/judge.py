"""What a trial compares of two answers of the tokens system."""

from __future__ import annotations

from typing import Any


class TokensJudge:
    """Compares the classes of one picture."""

    def utility(self, answer: dict[str, Any]) -> float | None:
        """Return the probability of the best class."""
        return float(max(answer["probabilities"].values()))

    def comparable(self, champion: dict[str, Any], challenger: dict[str, Any]) -> bool:  # noqa: ARG002
        """Return True."""
        return True

    def agree(self, champion: dict[str, Any], challenger: dict[str, Any]) -> bool | None:
        """Return whether both have the same class."""
        return bool(champion["label"] == challenger["label"])

    def late(self, answer: dict[str, Any]) -> bool | None:
        """Return whether the answer came after its deadline."""
        return not answer["on_time"]

    def labels(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return the class by the answer's id."""
        return {answer["id"]: answer["label"]} if "id" in answer else {}

    def failure(self, answer: dict[str, Any]) -> Exception | None:  # noqa: ARG002
        """Return None: an answer is there as a whole or not at all."""
        return None
