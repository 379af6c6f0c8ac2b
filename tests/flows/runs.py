"""Runs of a real flow: in a place with Prefect's server; what each released, which stages did work. Knows no system."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flows import release, settings
from registry.mlflow_store import CHAMPION

PATIENCE = 600.0  # seconds until what hangs is given up; nothing else ends by it


@contextmanager
def prefect_server(home: Path) -> Iterator[str]:
    """Prefect's server and settings for flows of this process, with its state in `home`; gives its address."""
    from prefect.settings import PREFECT_API_URL, PREFECT_FLOWS_HEARTBEAT_FREQUENCY, PREFECT_HOME, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    changes = {PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None, PREFECT_HOME: home}
    with temporary_settings(changes), prefect_test_harness(server_startup_timeout=round(PATIENCE)):
        yield str(PREFECT_API_URL.value())


@contextmanager
def place_in(folder: Path, address: str) -> Iterator[Path]:
    """`folder` is the working directory, with state and registry of its own, meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PLIANT_HOME", str(folder / "home"))
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlruns' / 'mlflow.db'}")
        patch.setenv("PREFECT_API_URL", address)
        yield folder


@dataclass
class Runs:
    """Runs a flow with changes of its setting. `standing`: those of the latest run; None: the champion is someone else's."""

    flow: Callable[..., dict[str, Any]]
    standing: dict[str, Any] | None = None

    def __call__(self, **changes: Any) -> tuple[dict[str, Any], list[str]]:
        """What the flow released and which stages did work, by the lines that they print; reading texts is none."""
        self.standing, told = None, io.StringIO()
        with redirect_stderr(told):
            released = self.flow(**changes)
        self.standing = changes
        lines = told.getvalue().splitlines()
        stages = [line.removesuffix(": started") for line in lines if line.endswith(": started")]
        return released, [name for name in stages if name != "texts"]

    def unchanged(self) -> None:
        """From here on the champion is that of the setting without changes. No run where it is already."""
        if self.standing != {}:
            self()


def versions(system: str, alias: str = CHAMPION) -> dict[str, int]:
    """Of the system's registered models, those under this alias."""
    return release.open_registry(settings.read(), f"pliant-{system}").versions(f"pliant-{system}-", alias)


def answer(model: str, asked: Any) -> Any:
    """What MLflow's own client makes of a champion. That it needs none of our code: tests/registry."""
    import mlflow

    before = list(sys.path)
    try:
        return mlflow.pyfunc.load_model(f"models:/{model}@{CHAMPION}").predict(asked)
    finally:
        sys.path[:] = before  # MLflow puts the model's code there
