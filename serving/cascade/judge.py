"""What a trial compares of two answers of the cascade."""

from __future__ import annotations

from typing import Any


class CascadeJudge:
    """Compares predictions, each of which has an answer or an error for each text."""

    def utility(self, answer: dict[str, Any]) -> float | None:
        """Return the mean calibrated confidence: the expected share of right answers."""
        shares = [text["confidence"] for text in answer["answers"] if "confidence" in text]
        return sum(shares) / len(shares) if shares else None

    def comparable(self, champion: dict[str, Any], challenger: dict[str, Any]) -> bool:
        """Return whether no level is one model that was calibrated anew.

        Its confidence then says how well it is calibrated, and not how often it is right: a challenger whose only merit is
        an honest confidence would be taken back for it. Labels are not concerned.
        """
        pairs = zip(champion["answers"], challenger["answers"], strict=True)
        return not any(_calibrated_anew(first.get("versions"), second.get("versions")) for first, second in pairs)

    def agree(self, champion: dict[str, Any], challenger: dict[str, Any]) -> bool | None:
        """Return whether all texts have the same class; None for a regression."""
        pairs = list(zip(_said(champion), _said(challenger), strict=True))
        if not all(isinstance(label, str) for pair in pairs for label in pair):
            return None
        return all(first == second for first, second in pairs)

    def late(self, answer: dict[str, Any]) -> bool | None:
        """Return whether any text was answered after its deadline."""
        return any(not text.get("on_time", True) for text in answer["answers"])

    def labels(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return the label of each text by the id of its answer."""
        return {text.get("id", f"error {at}"): text.get("label") for at, text in enumerate(answer["answers"])}

    def failure(self, answer: dict[str, Any]) -> Exception | None:  # noqa: ARG002
        """Return None: an answer is there as a whole or not at all."""
        return None


def _said(answer: dict[str, Any]) -> list[Any]:
    return [text.get("label") for text in answer["answers"]]


def _calibrated_anew(first: dict[str, Any] | None, second: dict[str, Any] | None) -> bool:
    """Whether two answers' versions name different plans and a model that both ran."""
    if first is None or second is None or first["task"] == second["task"]:
        return False
    return bool(first["models"].items() & second["models"].items())
