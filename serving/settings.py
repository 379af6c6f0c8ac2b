"""The settings that every service has, and the one place that reads them from the environment (PLIANT_*).

A system's own settings are a subclass in `serving/<system>/settings.py`, so that an option of another system is an error.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_type_hints

from pliant import systems
from pliant.errors import InputError

PREFIX = "PLIANT_"
SYSTEM = "PLIANT_SYSTEM"
OTHERS = (
    SYSTEM,
    "PLIANT_PROJECT",
    "PLIANT_KEEP_VERSIONS",
    "PLIANT_KEEP_DAYS",
    "PLIANT_STORE_GIB",
    "PLIANT_ROLLOUT",
    "PLIANT_FLOW_HOURS",
    "PLIANT_TASK_HOURS",
    "PLIANT_ALARM_MINUTES",
    "PLIANT_ALERT_WEBHOOK",
    "PLIANT_SIGNING_KEY",
)
"""Variables that are no field of Settings: the service's system, and what flows read, whose environment may be the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a service. Each field can be set by the variable PLIANT_ plus its name in capitals.

    `CHOICES`: field -> its known values. `NONE_AT_0`: field -> what there is none of at 0; it must be finite. `POSITIVE`:
    fields that must be above 0 and finite.
    """

    SYSTEM: ClassVar[str]
    CHOICES: ClassVar[Mapping[str, Collection[str]]] = {"log_format": ("text", "json")}
    NONE_AT_0: ClassVar[Mapping[str, str]] = {
        "refresh_seconds": "polls",
        "standby_seconds": "standby",
        "wait_for_release": "wait",
        "watch_seconds": "watch",
    }
    POSITIVE: ClassVar[tuple[str, ...]] = (
        "max_body_bytes",
        "max_waiting",
        "max_deadline",
        "launch_limit",
        "threads",
        "watch_burn_in",
    )

    registry_uri: str = (
        "sqlite:///mlruns/mlflow.db"  # Address of the registry: http(s)://SERVER, sqlite:///FILE or postgresql://...
    )
    experiment: str = ""  # MLflow experiment of the system (registry/names.py).
    artifact_root: str = "mlruns/artifacts"  # Folder of the artifacts, where the registry is a database.
    alias: str = "champion"  # Registry alias of the versions that are served.
    trusted_keys: Path | None = None  # File or folder of public keys; what none of them signed is refused.
    home: Path = Path(".pliant")  # Folder of all files that flows and services keep.
    refresh_seconds: float = 30.0  # Seconds between two polls of the registry; 0: no polls.
    wait_for_release: float = 0.0  # Seconds to wait for a first release at the start; 0: the start fails without one.
    standby_seconds: float = 600.0  # Seconds for which the former champion stays loaded, for a quick rollback.
    webhook_url: str = ""  # Address at which the tracking server reaches POST /registry-events; empty: no webhook.
    webhook_secret: str = ""  # Secret with which the tracking server signs webhooks.
    watch_seconds: float = 5.0  # Seconds between two tests for drift; 0: no drift detection.
    watch_burn_in: int = 5000  # Answers from which a release's usual traffic is learnt.
    trusted_labels: str = ""  # Tenants whose labels and requests count without a cap; anonymous: labels without a key.
    try_challengers: bool = True  # Try challengers that wait in the registry on real requests.
    trial_copied: float = 0.1  # Share of the requests that is copied to a challenger in shadow.
    trial_copies: int = 500  # Copies to compare before the canary; 0: no shadow.
    trial_copy_time: float = 0.02  # Most of the idle time that copies may take, as a share.
    trial_steps: str = "0.01,0.05,0.2,0.5,1"  # Shares of the requests in the steps of the canary.
    trial_requests: int = 150  # Minimum requests per canary step.
    trial_seconds: float = 300.0  # Minimum seconds per canary step.
    trial_hours: float = 24.0  # Hours after which an undecided challenger is taken back.
    device: str = "auto"  # Device: auto takes a GPU where there is one; several are separated by commas.
    threads: int | None = None  # Torch's threads in a device process (`pliant serve` and bentos: 1).
    any_profile: bool = False  # Serve with a profile of another class of device, too.
    max_body_bytes: int = 10 * 1024 * 1024  # Bytes that the body of a request may have.
    max_waiting: int = 2048  # Length of the queue; further requests are refused.
    max_deadline: float = 60.0  # Most seconds that a request may name as its deadline.
    launch_limit: float = 60.0  # Most seconds of a launch; most count as hung much earlier, by their profile.
    spare: int = 0  # Device processes that stand by with loaded models.
    host: str = "127.0.0.1"  # Address that the service listens on.
    open: bool = False  # Answer other machines without a key.
    keys: str = ""  # Content of a file of keys.
    keys_file: Path | None = None  # File of keys; by default keys.json in the home folder, if it is there.
    tls_cert: Path | None = None  # PEM file with the certificate chain.
    tls_key: Path | None = None  # PEM file with the private key of the certificate.
    allowed_hosts: str = ""  # Host headers that are accepted besides the own address, separated by commas.
    trusted_proxies: str = ""  # Proxies whose X-Forwarded-For and -Proto count, separated by commas.
    cors_origins: str = ""  # Origins of websites that may call the service, separated by commas.
    trace_share: float = 0.0  # Share of the requests that are traced to OTEL_EXPORTER_OTLP_ENDPOINT.
    log_format: str = "text"  # Format of the log: text, or json for an object a line.
    journal: Path | None = None  # File of the scheduler's events and decisions.

    def __post_init__(self) -> None:
        for name, choices in {**Settings.CHOICES, **self.CHOICES}.items():
            if getattr(self, name) not in choices:
                raise InputError(_variable(name), repr(getattr(self, name)), f"one of {', '.join(choices)}")
        for name, what in self.NONE_AT_0.items():
            if not 0 <= (value := getattr(self, name)) < float("inf"):
                raise InputError(_variable(name), value, f"0 for no {what}, or positive and finite")
        if not 0 <= self.trace_share <= 1:
            raise InputError(_variable("trace_share"), self.trace_share, "from 0 to 1")
        if not 0 < self.trial_copy_time <= 1:
            raise InputError(_variable("trial_copy_time"), self.trial_copy_time, "above 0 and at most 1")
        if self.spare < 0:
            raise InputError(_variable("spare"), self.spare, "0 for no process that stands by, or how many do")
        for name in self.POSITIVE:
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise InputError(_variable(name), value, "positive and finite")

    @property
    def system(self) -> str:
        return self.SYSTEM


S = TypeVar("S", bound=Settings)


def settings_of(system: str) -> type[Settings]:
    """Return the class of a system's settings, by its name in the list of systems. Raises `InputError`."""
    kind: type[Settings] = systems.system(system).part("serving", "settings").SETTINGS
    return kind


def check_margin(margin: float) -> None:
    """Raise `InputError` unless the margin, a share of the time to a deadline, is from 0 to below 1."""
    if not 0 <= margin < 1:
        raise InputError(_variable("margin"), margin, "at least 0 and below 1")


def from_environment(environment: Mapping[str, str], kind: type[S]) -> S:
    """Return the settings that the environment's variables give.

    Raises `InputError` for a variable that is unknown, belongs to another system, or is outside its limit.
    """
    if (system := environment.get(SYSTEM, kind.SYSTEM)) != kind.SYSTEM:
        raise InputError(SYSTEM, repr(system), f"{kind.SYSTEM}, as this service is")
    return kind(**fields_from_environment(environment, kind))


def fields_from_environment(environment: Mapping[str, str], kind: type[Settings]) -> dict[str, Any]:
    """Return the value of each field that the environment sets. Raises as `from_environment`."""
    known = {_variable(field.name): field.name for field in fields(kind)}
    ours = {name: text for name, text in environment.items() if name.startswith(PREFIX) and name not in OTHERS}
    for name in ours:
        if name not in known:
            raise InputError("environment variable", name, _elsewhere(name, kind) or _nearest(name, list(known)))
    types = get_type_hints(kind)
    return {known[name]: _parse(name, types[known[name]], text) for name, text in ours.items()}


def to_environment(settings: Settings) -> dict[str, str]:
    """Return the environment variables from which `from_environment` makes equal settings."""
    values = {_variable(field.name): getattr(settings, field.name) for field in fields(settings)}
    return {SYSTEM: settings.system} | {name: str(value) for name, value in values.items() if value is not None}


def check_options(kind: type[Settings], options: Collection[str]) -> None:
    """Raise `InputError` for an option that this system does not have."""
    known = [field.name for field in fields(kind)]
    for name in options:
        if name not in known:
            raise InputError("option", name, _elsewhere(_variable(name), kind) or _nearest(name, known))


def _elsewhere(variable: str, kind: type[Settings]) -> str:
    """Return a message that names the systems that have this setting; empty if none has."""
    field = variable.removeprefix(PREFIX).lower()
    having = [name for name in systems.names() if field in [own.name for own in fields(settings_of(name))]]
    return f"one of {kind.SYSTEM}'s; it is an option of {' and '.join(having)}" if having else ""


def _variable(field: str) -> str:
    return PREFIX + field.upper()


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    return f"a known one, such as {near[0]}"


def _parse(name: str, annotation: Any, text: str) -> Any:
    kind, expected = _KINDS[annotation]
    try:
        return kind(text)
    except (ValueError, KeyError):
        raise InputError(name, repr(text), expected) from None


_KINDS: Mapping[Any, tuple[Callable[[str], Any], str]] = {
    str: (str, "text"),
    int: (int, "a whole number"),
    int | None: (int, "a whole number"),
    float: (float, "a number"),
    bool: (lambda text: {"true": True, "1": True, "false": False, "0": False}[text.lower()], "true or false"),
    Path: (Path, "a path"),
    Path | None: (Path, "a path"),
}
