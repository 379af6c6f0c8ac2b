"""Observed lengths in a file, so that the next predictor can learn from what this one got wrong. Off by default: it holds
the prompts' texts.

<home>/observed/<model>.jsonl, one line an output that ended by itself or at its limit (cancelled, dropped and failed ones
say nothing of a length):

    {"prompt": text as the predictor read it, "prompt_tokens": of the prompt as the generator read it,
     "tokens": length of the output with the token that ended it,
     "censored": true where it ended at its limit, so that its own length is only known to be more than `tokens`,
     "finish": "end" (its own end token), "string" (a stop string of the client's) or "length",
     "limit": tokens that it might have had, "temperature": number,
     "forecast": quantiles in tokens at pliant.packing.scheduling.forecast.LEVELS, "bucket": tokens, 0 where not predicted,
     "prediction": "predicted", "late" or "failed", "generator": digest, "time": seconds since 1970}

A file that reaches its limit becomes <model>.1.jsonl, in place of the former one of that name: both together hold at most
twice the limit. A line that a killed process left without its end is to be passed over by who reads.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from serving.packing.reply import Output

logger = logging.getLogger("pliant.serving")

FOLDER = "observed"


def observed_path(home: Path, model: str) -> Path:
    return home / FOLDER / f"{model}.jsonl"


class ObservedLengths:
    """Appends. Where writing fails it ends, and the log says so once: serving goes on."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        self._path, self._most = path, most_bytes
        self._file: TextIO | None = None
        self._failed = False

    def add(self, output: Output, generator: str) -> None:
        """One that has ended as said above; any other is passed over."""
        if self._failed or output.flight.finish not in ("stop", "length"):
            return
        try:
            self._write(json.dumps(line(output, generator), ensure_ascii=False) + "\n")
        except OSError as error:
            self._failed = True
            logger.error("observed lengths are not written any more to %s: %s", self._path, error.strerror)

    def close(self) -> None:
        if self._file is not None and not self._failed:
            self._file.close()
        self._file = None

    def _write(self, text: str) -> None:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a", encoding="utf-8")
        self._file.write(text)
        self._file.flush()
        if self._file.tell() >= self._most:
            self.close()
            self._path.replace(self._path.with_suffix(".1.jsonl"))


def line(output: Output, generator: str) -> Mapping[str, Any]:
    flight, forecast = output.flight, output.forecast
    by_itself = "string" if flight.by_string else "end"
    return {
        "prompt": output.prompt,
        "prompt_tokens": flight.first.prompt.tokens,
        "tokens": len(flight.tokens),
        "censored": flight.finish == "length",
        "finish": by_itself if flight.finish == "stop" else "length",
        "limit": flight.first.prompt.limit,
        "temperature": flight.first.sampling.temperature,
        "forecast": [round(tokens, 3) for tokens in forecast.tokens],
        "bucket": forecast.bucket,
        "prediction": forecast.origin,
        "generator": generator,
        "time": round(time.time(), 3),
    }
