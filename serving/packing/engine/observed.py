"""Writes the lengths of outputs to a file, to train the next predictor with. Off by default: the file has the prompts.

<home>/observed/<model>.jsonl has a line for each output that ended by itself or at its limit, but for those of requests that
change what the model says or where it ends (penalties, `logit_bias`, `ignore_eos`, `min_tokens`, `stop_token_ids`):

    {"prompt": text as the predictor read it, "prompt_tokens": of the prompt as the generator read it,
     "tokens": length of the output with the token that ended it,
     "censored": true if it ended at its limit, so that its full length is only known to be more than `tokens`,
     "finish": "end" (its own end token), "string" (a stop string of the client's) or "length",
     "limit": tokens that it could have had, "temperature": number,
     "forecast": quantiles in tokens at pliant.packing.scheduling.forecast.QUANTILES, "bucket": tokens, 0 if not predicted,
     "prediction": "predicted", "late" or "failed", "generator": digest, "time": seconds since 1970,
     "id": of the answer, without chatcmpl- or cmpl-, "tenant": whose request it was}

A file that reaches its size limit replaces <model>.1.jsonl, so that both together have at most twice that size. Only their
owner can read them. What is older than `DAYS` is overwritten with spaces, as by `pliant forget`. Readers skip such lines,
and one without its end, which a killed process leaves.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from pliant.jsonl import blank_lines, open_to_append
from pliant.outcomes.files import prompt_of
from pliant.serving.packing.reply import Choice
from pliant.serving.state_file import Writing

DAYS = 30  # that a line is kept
DAY = 86_400.0  # seconds


class ObservedLengths:
    """Appends lines to the file. If writing fails, it stops and the log says so once."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._file: BinaryIO | None = None
        self._writing, self._pruned = Writing("observed", path), 0.0

    def add(self, choice: Choice, generator: str, id: str = "") -> None:
        """Write a choice, if it ended by itself or at its limit, and not as its request alone made it.

        `id`: of the answer.
        """
        if self._writing.failing or choice.output.finish not in ("stop", "length") or not choice.typical:
            return
        try:
            if self._file is None:
                self._file = open_to_append(self._path)
            self._file.write(json.dumps(line(choice, generator, id), ensure_ascii=False).encode() + b"\n")
            self._file.flush()
            if self._file.tell() >= self._max_bytes:
                self.close()
                self._path.replace(self._path.with_suffix(".1.jsonl"))
            limit = time.time() - DAYS * DAY
            if limit - self._pruned >= DAY:  # once a day the lines of before `limit` are overwritten, at the beginning
                self._pruned = limit
                for path in (self._path, self._path.with_suffix(".1.jsonl")):
                    if path.is_file():
                        blank_lines(path, lambda line: prompt_of(line).get("time", 0.0) < limit, leading=True)
        except OSError as error:
            self._writing.failed(f"observed lengths are no longer written to {self._path}: {error.strerror}")

    def close(self) -> None:
        if self._file is not None and not self._writing.failing:
            self._file.close()
        self._file = None


def line(choice: Choice, generator: str, id: str = "") -> Mapping[str, Any]:
    """Return the line of a choice; `generator` is its digest, `id` that of the answer."""
    output, forecast = choice.output, choice.forecast
    by_itself = "string" if output.at_stop_string else "end"
    return {
        "prompt": choice.prompt,
        "prompt_tokens": output.first.prompt.tokens,
        "tokens": len(output.tokens),
        "censored": output.finish == "length",
        "finish": by_itself if output.finish == "stop" else "length",
        "limit": output.first.prompt.limit,
        "temperature": output.first.sampling.temperature,
        "forecast": [round(tokens, 3) for tokens in forecast.tokens],
        "bucket": forecast.bucket,
        "prediction": forecast.origin,
        "generator": generator,
        "time": round(time.time(), 3),
        "id": id,
        "tenant": output.first.prompt.tenant,
    }
