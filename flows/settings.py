"""The one file of the flow and command-line processes that reads the environment, and that prepares it for others.

Prefect reads its own settings when it is imported: call `prepare` before.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_QUIET = {
    "DO_NOT_TRACK": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "BENTOML_DO_NOT_TRACK": "True",
    # The command itself tells of a failure, in one sentence; Prefect's server keeps the state and its message.
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
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
    """Where things are. `home`: state of ours (stage results, Prefect's and BentoML's folders)."""

    home: Path
    tracking_uri: str
    artifact_root: Path

    @property
    def store(self) -> Path:
        return self.home / "store"


def read(environment: Mapping[str, str] = os.environ) -> Settings:
    """PLIANT_HOME (default `.pliant`), MLFLOW_TRACKING_URI (default `mlruns/mlflow.db` in the working directory)."""
    home = Path(environment.get("PLIANT_HOME", ".pliant")).absolute()
    runs = Path("mlruns").absolute()
    uri = environment.get("MLFLOW_TRACKING_URI", f"sqlite:///{runs / 'mlflow.db'}")
    return Settings(home, uri, runs / "artifacts")


def prepare(settings: Settings) -> None:
    """Set what Prefect and MLflow read, where the user has not: quiet, offline, inside the project's folders."""
    for name, value in {**_QUIET, "PREFECT_HOME": str(settings.home / "prefect")}.items():
        os.environ.setdefault(name, value)
