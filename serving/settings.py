"""The settings that every service has, and the one place that reads them from the environment (PLIANT_*).

A system's own settings are a subclass in `serving/<system>/settings.py`, so that an option of another system is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import Field, model_validator

from pliant import systems
from pliant.errors import InputError
from pliant.settings import (
    PREFIX,
    Count,
    EnvironmentSettings,
    FlowSettings,
    NotNegative,
    OneOf,
    Option,
    Positive,
    Share,
    variable,
)

SYSTEM = "PLIANT_SYSTEM"
Margin = Annotated[float, Field(ge=0, lt=1)]


class Settings(EnvironmentSettings):
    """The settings of a service. Each field can be set by the variable PLIANT_ plus its name in capitals."""

    SYSTEM: ClassVar[str]

    registry_uri: Annotated[str, Option("")] = "sqlite:///mlruns/mlflow.db"
    """Address of the registry: http(s)://SERVER, sqlite:///FILE or postgresql://..."""
    experiment: str = ""
    """MLflow experiment of the system (registry/names.py)."""
    artifact_root: Annotated[str, Option("")] = "mlruns/artifacts"
    """Folder of the artifacts, where the registry is a database."""
    alias: str = "champion"
    """Registry alias of the versions that are served."""
    trusted_keys: Path | None = None
    """File or folder of public keys; what none of them signed is refused."""
    home: Annotated[Path, Option("")] = Path(".pliant")
    """Folder of all files that flows and services keep."""
    refresh_seconds: Annotated[NotNegative, Option("--refresh")] = 30.0
    """Seconds between two polls of the registry; 0: no polls."""
    wait_for_release: NotNegative = 0.0
    """Seconds to wait for a first release at the start; 0: the start fails without one."""
    standby_seconds: Annotated[NotNegative, Option("--standby")] = 600.0
    """Seconds for which the former champion stays loaded, for a quick rollback; 0: its memory is freed at once."""
    webhook_url: str = ""
    """Address at which the tracking server reaches POST /registry-events; empty: no webhook."""
    webhook_secret: Annotated[str, Option("")] = ""
    """Secret with which the tracking server signs webhooks."""
    watch_seconds: NotNegative = 5.0
    """Seconds between two tests for drift; 0: no drift detection."""
    watch_burn_in: Count = 5000
    """Answers from which a release's usual traffic is learnt."""
    trusted_labels: str = ""
    """Tenants whose labels and requests count without a cap; anonymous: labels without a key."""
    try_challengers: bool = True
    """Try challengers that wait in the registry on real requests."""
    trial_copied: float = 0.1
    """Share of the requests that is copied to a challenger in shadow."""
    trial_copies: int = 500
    """Copies to compare before the canary; 0: no shadow."""
    trial_copy_time: Annotated[float, Field(gt=0, le=1)] = 0.02
    """Most of the idle time that copies may take, as a share."""
    trial_steps: str = "0.01,0.05,0.2,0.5,1"
    """Shares of the requests in the steps of the canary."""
    trial_requests: int = 150
    """Minimum requests per canary step."""
    trial_seconds: float = 300.0
    """Minimum seconds per canary step."""
    trial_hours: float = 24.0
    """Hours after which an undecided challenger is taken back."""
    guard_hours: NotNegative = 24.0
    """Hours after its promotion in which a challenger is compared with the former champion, which stays loaded; 0: none."""
    device: str = "auto"
    """Device: auto takes a GPU where there is one; several are separated by commas."""
    threads: Count | None = None
    """Torch's threads in a device process (`pliant serve` and bentos: 1)."""
    any_profile: bool = False
    """Serve with a profile of another class of device, too."""
    max_body_bytes: Count = 10 * 1024 * 1024
    """Bytes that the body of a request may have."""
    max_waiting: Count = 2048
    """Length of the queue; further requests are refused."""
    max_deadline: Positive = 60.0
    """Most seconds that a request may name as its deadline."""
    launch_limit: Positive = 60.0
    """Most seconds of a launch; most count as hung much earlier, by their profile."""
    spare: Annotated[int, Field(ge=0)] = 0
    """Device processes that stand by with loaded models."""
    host: str = "127.0.0.1"
    """Address that the service listens on; without keys only this machine's own, unless it is open."""
    open: bool = False
    """Answer other machines without a key."""
    keys: Annotated[str, Option("")] = ""
    """Content of a file of keys."""
    keys_file: Annotated[Path | None, Option("--keys")] = None
    """File of keys; by default keys.json in the home folder, if it is there."""
    tls_cert: Path | None = None
    """PEM file with the certificate chain."""
    tls_key: Path | None = None
    """PEM file with the private key of the certificate."""
    allowed_hosts: Annotated[str, Option("--allowed-host", repeated=True)] = ""
    """Host headers that are accepted besides the own address, separated by commas."""
    trusted_proxies: Annotated[str, Option("--trusted-proxy", repeated=True)] = ""
    """Proxies whose X-Forwarded-For and -Proto count, separated by commas."""
    cors_origins: Annotated[str, Option("--cors-origin", repeated=True)] = ""
    """Origins of websites that may call the service, separated by commas."""
    trace_share: Share = 0.0
    """Share of the requests that are traced to OTEL_EXPORTER_OTLP_ENDPOINT."""
    log_format: Annotated[str, OneOf(("text", "json"))] = "text"
    """Format of the log: text, or json for an object a line."""
    journal: Path | None = None
    """File of the scheduler's events and decisions; the file of a former run is kept as FILE.1, FILE.2, ..."""

    @property
    def system(self) -> str:
        return self.SYSTEM

    @classmethod
    def nearest(cls, name: str, shape: Any) -> str:
        """Return what is expected in place of a name: another one, or another system, which has this setting."""
        field = name.removeprefix(PREFIX).lower()
        having = [each for each in systems.names() if field in settings_of(each).model_fields]
        if having:
            return f"one of {cls.SYSTEM}'s; it is an option of {' and '.join(having)}"
        return super().nearest(name, shape)


S = TypeVar("S", bound=Settings)


def settings_of(system: str) -> type[Settings]:
    """Return the class of a system's settings, by its name in the list of systems. Raises `InputError`."""
    kind: type[Settings] = systems.system(system).part("serving", "settings").SETTINGS
    return kind


def from_environment(environment: Mapping[str, str], kind: type[S]) -> S:
    """Return the settings that the environment's variables give.

    Raises `InputError` for a variable that is unknown, belongs to another system, or is outside its limit.
    """
    if (system := environment.get(SYSTEM, kind.SYSTEM)) != kind.SYSTEM:
        raise InputError(SYSTEM, repr(system), f"{kind.SYSTEM}, as this service is")
    return kind(**fields_from_environment(environment, kind))


def fields_from_environment(environment: Mapping[str, str], kind: type[Settings]) -> dict[str, Any]:
    """Return the text of each field that the environment sets. Raises `InputError` for an unknown variable."""
    given = kind.given(environment)
    known = {SYSTEM, *map(variable, (*given, *FlowSettings.model_fields))}
    for name in environment:
        if name.startswith(PREFIX) and name not in known:
            raise InputError("environment variable", name, kind.nearest(name, variable))
    return given


def to_environment(settings: Settings) -> dict[str, str]:
    """Return the environment variables from which `from_environment` makes equal settings."""
    values = {variable(name): str(value) for name, value in settings if value is not None}
    return {SYSTEM: settings.system} | values


class OutcomeSettings(Settings):
    """The settings of a service that takes labels.

    Below `home`/outcomes/SYSTEM it keeps what labels need: ids, versions, classes, confidences, tenants and times of the
    latest answers, and the labels. That is nothing that people wrote or sent, so it is on by default. `keep_inputs` keeps
    that, too: the texts or pictures themselves, bounded in number, bytes and days, until `pliant forget`
    removes them. Ask whoever sends them before you set it.
    """

    outcomes_days: NotNegative = 30.0
    """Days for which an answer can be labelled; 0: nothing is kept on disk."""
    promise_floor: Share = 0.3
    """By how much a class, tenant or declared slice may be below the promised accuracy."""
    keep_inputs: bool = False
    """Keep the texts or pictures that people sent, to learn from them with their labels."""

    @model_validator(mode="after")
    def _inputs_need_days(self) -> Self:
        if self.keep_inputs and not self.outcomes_days:
            raise InputError("PLIANT_KEEP_INPUTS", "true", "false where PLIANT_OUTCOMES_DAYS is 0")
        return self
