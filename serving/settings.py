"""The settings of a service process, and the one place that reads its environment (PLIANT_*).

Knows names, types and limits; knows nothing of what the settings do.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pliant.bins.dispatch import DISPATCHES
from pliant.bins.policies import POLICIES as BINS_POLICIES
from pliant.errors import InputError
from pliant.packing.scheduling.policy import POLICIES as PACKING_POLICIES
from pliant.tokens.policies import POLICIES

PREFIX = "PLIANT_"
SYSTEMS = ("tokens", "bins", "cascade", "packing")
PLACEMENTS = ("shared", "own")
POOLS = ("processes", "ray")
CHOICES = (
    *(("system", SYSTEMS), ("placement", PLACEMENTS)),
    *(("pool", POOLS), ("dispatch", DISPATCHES)),
)
POSITIVE = (
    *("max_body_bytes", "max_image_pixels", "max_texts", "max_waiting", "max_deadline"),
    *("launch_limit", "threads", "workers", "least_workers"),
    *("predict_limit", "stream_limit", "observed_bytes", "processes"),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Every field can be set by the variable PLIANT_ plus its name in capitals. What one system alone goes by says so."""

    system: str = "tokens"  # which service
    registry_uri: str = "sqlite:///mlruns/mlflow.db"
    experiment: str = "pliant-tokens"
    artifact_root: str = "mlruns/artifacts"
    alias: str = "champion"
    policy: str = "default"  # one of pliant/SYSTEM/policies.py (packing: scheduling/policy.py)
    gamma: int | None = None  # tokens: for the policies that keep to one
    workers: int = 1  # bins, cascade: devices
    least_workers: int | None = None  # bins: fewest that are in use at low load; None: always all
    pool: str = "processes"  # bins: where devices are: processes of this machine's, or actors of Ray's nodes
    ray_address: str = ""  # bins: of the cluster that this machine is a node of (host:port, auto); empty: a local one
    dispatch: str = "completion"  # bins: one of pliant/bins/dispatch.py, where each device holds one runtime
    home: Path = Path(".pliant")  # bins: `compiled` in it holds what the flow compiled; packing: see `observe`
    placement: str = "shared"  # cascade: every worker runs every level, or ("own") the first the first one, and so on
    margin: float = 0.15  # share of the time to a deadline that is kept for the way back to the caller
    refresh_seconds: float = 30.0  # between two looks at what the alias points to; 0 for none
    device: str = "cpu"  # bins, cascade, packing: several, separated by commas, are given to the workers in turn
    threads: int | None = None  # torch threads of the device process; None: as many as torch takes by itself
    any_profile: bool = False  # serve with a profile that was measured on another class of device
    max_body_bytes: int = 10 * 1024 * 1024
    max_image_pixels: int = 25_000_000  # tokens
    max_texts: int = 256  # bins, cascade: in one request; packing: outputs
    max_waiting: int = 2048
    max_deadline: float = 60.0
    launch_limit: float = 60.0  # seconds after which a running launch (packing: a silent engine) counts as hung
    predict_limit: float = 0.05  # packing: seconds that a request waits for the forecast of its output's length
    stream_limit: float = 30.0  # packing: seconds in which a client must take a piece of its stream
    processes: int = 1  # packing: that share the model, one a GPU, or all on the CPU with `threads` each
    observe: bool = False  # packing: keep prompts and the lengths of their outputs in `home`, to learn from
    observed_bytes: int = 64 * 1024 * 1024  # packing: of them before the oldest go, twice
    journal: Path | None = None

    def __post_init__(self) -> None:
        policies = tuple({"packing": PACKING_POLICIES, "bins": BINS_POLICIES}.get(self.system, POLICIES))
        for name, choices in (*CHOICES, ("policy", policies)):
            if getattr(self, name) not in choices:
                raise InputError(_variable(name), repr(getattr(self, name)), f"one of {', '.join(choices)}")
        if not 0 <= self.margin < 1:
            raise InputError(_variable("margin"), self.margin, "at least 0 and below 1")
        if not 0 <= self.refresh_seconds < float("inf"):
            raise InputError(_variable("refresh_seconds"), self.refresh_seconds, "0 for never, or positive and finite")
        for name in POSITIVE:
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise InputError(_variable(name), value, "positive and finite")
        if self.least_workers is not None and self.least_workers > self.workers:
            raise InputError(_variable("least_workers"), self.least_workers, f"at most the workers, {self.workers}")


def from_environment(environment: Mapping[str, str]) -> Settings:
    """Raises `InputError` naming the variable: one that is unknown (with the nearest known), or one out of its limit."""
    known = {_variable(field.name): field for field in fields(Settings)}
    ours = {name: text for name, text in environment.items() if name.startswith(PREFIX)}
    for name in ours:
        if name not in known:
            raise InputError("environment variable", name, _nearest(name, list(known)))
    return Settings(**{known[name].name: _parse(name, str(known[name].type), text) for name, text in ours.items()})


def to_environment(settings: Settings) -> dict[str, str]:
    """The variables from which `from_environment` makes equal settings."""
    values = {_variable(field.name): getattr(settings, field.name) for field in fields(settings)}
    return {name: str(value) for name, value in values.items() if value is not None}


def _variable(field: str) -> str:
    return PREFIX + field.upper()


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    return f"a known one, such as {near[0]}"


def _parse(name: str, annotation: str, text: str) -> Any:
    kind, expected = _KINDS[annotation]
    try:
        return kind(text)
    except (ValueError, KeyError):
        raise InputError(name, repr(text), expected) from None


_KINDS: Mapping[str, tuple[Callable[[str], Any], str]] = {
    "str": (str, "text"),
    "int": (int, "a whole number"),
    "int | None": (int, "a whole number"),
    "float": (float, "a number"),
    "bool": (lambda text: {"true": True, "1": True, "false": False, "0": False}[text.lower()], "true or false"),
    "Path": (Path, "a path"),
    "Path | None": (Path, "a path"),
}
