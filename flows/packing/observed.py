"""Reads and checks the outputs that a service has written (serving/packing/engine/observed.py says how).

Knows no Prefect, no registry and no model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pliant.errors import InputError
from pliant.jsonl import Torn, complete_lines
from pliant.packing.scheduling.forecast import MEDIAN, QUANTILES, UPPER

FOLDER = "observed"
PREDICTED = "predicted"


@dataclass(frozen=True, slots=True)
class Output:
    """One output; see the service's file for what the fields say."""

    prompt: str  # as the predictor read it
    prompt_tokens: int
    tokens: int
    finish: str  # end | string | length
    limit: int
    forecast: tuple[float, ...]
    bucket: int
    prediction: str
    generator: str


def default_path(home: Path, name: str) -> Path:
    """Return the file that the service of the model `name` writes."""
    return home / FOLDER / f"{name}.jsonl"


def read(path: Path, latest: int) -> tuple[Output, ...]:
    """Return the latest outputs, the oldest first, with those of the file that this one continues; () without a file.

    A last line without its end was left by a process that was killed, and is passed over; so is any other line that the
    service did not write whole, and the log says how many were. Raises `InputError` for a file that cannot be read.
    """
    outputs: list[Output] = []
    for file in (path.with_suffix(".1.jsonl"), path):
        if file.is_file():
            outputs += _read(file)
    return tuple(outputs[-latest:])


def _read(path: Path) -> Iterator[Output]:
    torn = Torn(path)
    for number, line in enumerate(complete_lines(path, "observed"), start=1):
        if line.strip():
            with torn.pass_over(number):
                yield _output(line, f"{path}, line {number},")
    torn.report("observed outputs")


def _output(line: str, where: str) -> Output:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise InputError(where, line[:60], f"a JSON object ({error})") from error
    checks: Mapping[str, Callable[[Any], bool]] = {
        "prompt": lambda value: isinstance(value, str),
        "prompt_tokens": lambda value: _whole(value, 1),
        "tokens": lambda value: _whole(value, 1),
        "finish": lambda value: value in ("end", "string", "length"),
        "limit": lambda value: _whole(value, 1),
        "forecast": _is_forecast,
        "bucket": lambda value: _whole(value, 0),
        "prediction": lambda value: isinstance(value, str),
        "generator": lambda value: isinstance(value, str),
    }
    if not isinstance(record, dict):
        raise InputError(where, line[:60], "a JSON object")
    for key, fits in checks.items():
        if key not in record or not fits(record[key]):
            raise InputError(
                f"{where} {key}", record.get(key, "missing"), "as serving/packing/engine/observed.py writes it"
            )
    return Output(**{key: record[key] for key in checks} | {"forecast": tuple(map(float, record["forecast"]))})


def _whole(value: Any, least: int) -> bool:
    return type(value) is int and value >= least


def _is_forecast(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != len(QUANTILES):
        return False
    return all(type(tokens) in (int, float) and math.isfinite(tokens) and tokens > 0 for tokens in value)


def usable_outputs(outputs: Sequence[Output], generator: str, context: int) -> tuple[Output, ...]:
    """Return the outputs that have this generator's own lengths.

    An output that its client's stop string ended, or a limit below the context, would have been longer: by how much nobody
    knows, so it is left out (training on it as it is would teach to forecast too little).
    """
    own = (output for output in outputs if output.generator == generator)
    return tuple(output for output in own if output.finish == "end" or _whole_context(output, context))


def _whole_context(output: Output, context: int) -> bool:
    return output.finish == "length" and output.prompt_tokens + output.limit >= context


def drift(outputs: Sequence[Output]) -> dict[str, float]:
    """Return how far predictions that came in time were off: shares of the outputs within, tokens beyond.

    `coverage.L`: of the outputs no longer than the forecast at L; `off`: mean absolute error of the median in the log;
    `over`, `under`: mean tokens by which the upper forecast was above or below.
    """
    used = [output for output in outputs if output.prediction == PREDICTED]
    counts = {"predicted": float(len(used)), "outputs": float(len(outputs))}
    if not used:
        return counts
    forecast_NL = np.array([output.forecast for output in used])
    tokens_N = np.array([output.tokens for output in used], float)
    beyond_N = forecast_NL[:, UPPER] - tokens_N
    covered = {
        f"coverage.{level:g}": float(np.mean(tokens_N <= forecast_NL[:, at])) for at, level in enumerate(QUANTILES)
    }
    off = float(np.abs(np.log(tokens_N) - np.log(forecast_NL[:, MEDIAN])).mean())
    over, under = float(np.maximum(beyond_N, 0).mean()), float(np.maximum(-beyond_N, 0).mean())
    return counts | covered | {"off": off, "over": over, "under": under}
