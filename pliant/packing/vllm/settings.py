"""Settings of the scheduler in vLLM: a TOML file named by PLIANT_SCHEDULER, or variables of the same names.

A variable PLIANT_SCHEDULER_POLICY, for example, goes before `policy` in the file. Nothing is passed over: an unknown name in
either is refused.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pliant.errors import InputError
from pliant.packing.scheduling.policy import TURNOVER, Rules

FILE = "PLIANT_SCHEDULER"
LARGEST = 10**300  # of whole numbers in a file, beyond which one is as good as infinite


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user may set. Raises `InputError` outside limits."""

    policy: str = "default"  # one of pliant.packing.scheduling.policy.POLICIES
    safety: float = 1.0  # where the adaptive safety starts, in standard deviations of the predicted pages
    turnover_preemptions: float = TURNOVER  # at which the safety settles, while as many requests finish as run at once
    reorder_patience: float = 1.5  # times the recent delay by which a request of typical size is put back
    recalibrate: bool = True  # correct forecasts by the outputs that have ended
    predictor: str = ""  # folder of a length predictor's artifact; empty: lengths are learnt while serving
    wait: float = 0.1  # seconds for which a request waits for its forecast, at most, while others run
    deadline: float = 0.0  # seconds from arrival of requests that name none; 0: none
    journal: str = ""  # file to which every decision is appended; empty: none

    def __post_init__(self) -> None:
        for name in ("wait", "deadline"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise InputError(name, getattr(self, name), "at least 0 and finite")
        if self.predictor and not Path(self.predictor).is_dir():
            raise InputError("predictor", self.predictor, "the folder of a length predictor's artifact")
        self.rules(2)

    def rules(self, context: int) -> Rules:
        """Return the policy with its parameters, for a model of `context` tokens."""
        return Rules(
            *(self.policy, context, self.safety, 0.0, self.reorder_patience),
            recalibrate=self.recalibrate,
            turnover_preemptions=self.turnover_preemptions,
        )


def read(environment: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of the environment. Raises `InputError` for an unknown name, a wrong type, and a missing file."""
    given = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    if given.get(FILE):
        try:
            values = tomllib.loads(Path(given[FILE]).read_text())
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InputError(FILE, given[FILE], f"a readable TOML file ({error})") from None
    types = {field.name: type(field.default) for field in fields(Settings)}
    for name in values:
        if name not in types:
            raise InputError("setting", name, f"one of {', '.join(types)}")
    for variable, text in given.items():
        name = variable.removeprefix(f"{FILE}_").lower()
        if variable.startswith(f"{FILE}_"):
            if name not in types:
                raise InputError("variable", variable, f"{FILE}_ and one of {', '.join(types).upper()}")
            values[name] = _parsed(name, text, types[name])
    return Settings(**{name: _typed(name, value, types[name]) for name, value in values.items()})


def _parsed(name: str, text: str, kind: type) -> Any:
    if kind is bool:
        if text.lower() not in ("true", "false", "1", "0"):
            raise InputError(name, text, "true or false")
        return text.lower() in ("true", "1")
    try:
        return kind(text)
    except ValueError:
        raise InputError(name, text, "a number") from None


def _typed(name: str, value: Any, kind: type) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value) if abs(value) < LARGEST else float("inf")
    if not isinstance(value, kind):
        raise InputError(name, repr(value), {float: "a number", str: "a text", bool: "true or false"}[kind])
    return value
