"""What a trial compares of two replies of packing: their texts, the forecasts of their lengths, and their deadlines."""

from __future__ import annotations

import math
from typing import Any

from pliant.packing.scheduling.forecast import MEDIAN
from pliant.serving.http.api_errors import ApiError
from pliant.serving.packing.reply import Choice, Reply

OCTAVES = 4.0  # by which a forecast is worth nothing: 16 times too long or too short


class PackingJudge:
    """Compares whole replies."""

    def utility(self, answer: Reply) -> float | None:
        """Return how good the forecasts of lengths were, from 0 to 1; None where none was made or no length is typical.

        A forecast loses by the logarithm of median over length: it is what the scheduler's order goes by.
        """
        errors = [_error(choice) for choice in answer.choices if _is_forecast(choice)]
        return 1 - sum(errors) / len(errors) if errors else None

    def comparable(self, champion: Reply, challenger: Reply) -> bool:  # noqa: ARG002
        """Return True."""
        return True

    def agree(self, champion: Reply, challenger: Reply) -> bool | None:
        """Return whether both wrote the same tokens; None where they were drawn at random."""
        pairs = list(zip(champion.choices, challenger.choices, strict=True))
        if any(first.output.first.sampling.temperature > 0 for first, _ in pairs):
            return None
        return all(list(first.output.tokens) == list(second.output.tokens) for first, second in pairs)

    def late(self, answer: Reply) -> bool | None:
        """Return whether a deadline or a target was missed; None without any."""
        if not any(choice.has_targets for choice in answer.choices):
            return None
        return not all(choice.on_time for choice in answer.choices)

    def labels(self, answer: Reply) -> dict[str, Any]:  # noqa: ARG002
        """Return nothing: there are no labels."""
        return {}

    def failure(self, answer: Reply) -> Exception | None:
        """Return why there is no whole answer. What the client left or did not read is not the service's fault."""
        error = answer.api_error()
        if error is not None and any(choice.output.finish == "cancelled" for choice in answer.choices):
            return ApiError(499, "cancelled", "the client has left")
        return error


def _is_forecast(choice: Choice) -> bool:
    return choice.typical and choice.forecast.origin == "predicted" and choice.output.finish == "stop"


def _error(choice: Choice) -> float:
    ratio = (1 + choice.forecast.tokens[MEDIAN]) / (1 + len(choice.output.tokens))
    return min(1.0, abs(math.log2(ratio)) / OCTAVES)
