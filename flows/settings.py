"""Reads the environment for the flow and command-line processes, and prepares it for others: no other file of them does.

Prefect reads its own settings when it is imported: call `prepare` before.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pliant import redaction
from pliant.errors import InputError
from pliant.registry.mlflow_client import database
from pliant.registry.signing.signatures import SIGNING_KEY, TRUSTED_KEYS

_QUIET = {
    "DO_NOT_TRACK": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "BENTOML_DO_NOT_TRACK": "True",
    # The command itself reports a failure, in one sentence; Prefect's server keeps the state and its message.
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_INTERNAL_LOGGING_LEVEL": "CRITICAL",
    # What runs say of themselves is for their pages.
    **dict.fromkeys((f"PREFECT_LOGGING_LOGGERS_PREFECT_{kind}_RUNS_LEVEL" for kind in ("FLOW", "TASK")), "INFO"),
    "HF_HUB_VERBOSITY": "error",
    "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_RESULTS_DEFAULT_SERIALIZER": "json",
    # A loaded machine with SQLite behind the server else answers `database is locked`.
    "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
    "PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT": "60",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Where things are. `home`: Pliant's own state (stage results, Prefect's and BentoML's folders).

    `signing_key`: file of the private key that signs what is published; None: nothing is signed. `trusted_keys`: file or
    folder of the public keys whose artifacts alone are read and released; None: all are. `release`: number of the release
    that is read as the champion; None: what is served.
    """

    home: Path
    tracking_uri: str
    artifact_root: Path
    signing_key: Path | None = None
    trusted_keys: Path | None = None
    release: int | None = None

    @property
    def store(self) -> Path:
        return self.home / "store"

    def home_of(self, system: str) -> Path:
        """Return the PLIANT_HOME of a system's service: `home` too, unless what is mounted here gives it one of its own."""
        own = self.home / "services" / system
        return own if own.is_dir() else self.home


def read(environment: Mapping[str, str] = os.environ) -> Settings:
    """Read PLIANT_HOME (default `.pliant`) and MLFLOW_TRACKING_URI (default `mlruns/mlflow.db` in the working directory),
    PLIANT_SIGNING_KEY and PLIANT_TRUSTED_KEYS (default: none).

    Artifacts lie beside the registry's database; with another registry than a database file, under `mlruns`.
    """
    home = Path(environment.get("PLIANT_HOME", ".pliant")).absolute()
    runs = Path("mlruns").absolute()
    uri = environment.get("MLFLOW_TRACKING_URI", f"sqlite:///{runs / 'mlflow.db'}")
    file = database(uri)
    signing_key, trusted_keys = (_path(environment, name) for name in (SIGNING_KEY, TRUSTED_KEYS))
    return Settings(home, uri, (file.absolute().parent if file else runs) / "artifacts", signing_key, trusted_keys)


def _path(environment: Mapping[str, str], name: str) -> Path | None:
    """Return the path in a variable, None without the variable. An empty one is an error: it may be meant to protect."""
    text = environment.get(name)
    if text == "":
        raise InputError(name, "empty", "a path; unset it to do without")
    return None if text is None else Path(text).absolute()


def prepare(project: Settings | None = None) -> Settings:
    """Set what Prefect and MLflow read, where the user has not: quiet, offline, inside the project's folders.

    Returns the settings of the project: those given, or those of the environment. Raises `InputError` if there can be no
    folder for our state.
    """
    settings = project or read()
    try:
        settings.home.mkdir(parents=True, exist_ok=True)  # or Prefect warns that it cannot make its own in there
    except OSError as error:
        raise InputError("PLIANT_HOME", settings.home, f"a folder that can be made ({error.strerror})") from error
    if "PREFECT_LOGGING_LEVEL" not in os.environ:
        for name in ("prefect.flow_runs", "prefect.task_runs"):
            logging.getLogger(name).propagate = False
    for name, value in {**_QUIET, "PREFECT_HOME": str(settings.home / "prefect")}.items():
        os.environ.setdefault(name, value)
    redaction.install()  # Prefect logs tracebacks, and its server keeps them
    # Where the command ends soon after its server, this logger reports lost events, which nobody will miss.
    # No variable controls it.
    logging.getLogger("EventsWorker").setLevel(logging.CRITICAL)
    return settings
