"""What the watch sees of an output of packing: lengths of prompt and output, and how good its forecast was."""

from __future__ import annotations

from bisect import bisect_left

from pliant.packing.scheduling.forecast import QUANTILES
from pliant.serving.packing.reply import Choice
from pliant.serving.watch.seen import Seen
from pliant.serving.watch.streams import LENGTHS, labels, numbers

PLACES = (*(f"below its {quantile:g} quantile" for quantile in QUANTILES), "above all quantiles")
"""Where an output's length lies among the quantiles that were forecast: the shares of these show the coverage."""


class PackingWatch:
    """Counts outputs in `seen`."""

    def __init__(self, seen: Seen, burn_in: int) -> None:
        self._seen = seen
        self._lengths, self._places = numbers(LENGTHS, burn_in), labels(PLACES, burn_in)

    def count(self, model: str, choice: Choice) -> None:
        """Count an output that ended by itself or at its limit, and not as its request alone made it."""
        if not self._seen.takes():
            return
        output, forecast = choice.output, choice.forecast
        self._seen.number(f"tokens of prompts of {model}", output.first.prompt.tokens, self._lengths)
        if output.finish not in ("stop", "length") or not choice.typical:
            return
        length = len(output.tokens)
        self._seen.number(f"tokens of outputs of {model}", length, self._lengths)
        if forecast.origin == "predicted" and output.finish == "stop":
            self._seen.label(f"forecast of {model}", bisect_left(forecast.tokens, length), self._places)
