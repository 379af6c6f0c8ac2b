"""Runs of a real flow: in a place with Prefect's server; what each released, which stages did work. Knows no system."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flows import release, settings
from registry.mlflow_store import CHAMPION


@contextmanager
def prefect_in(folder: Path) -> Iterator[Path]:
    """`folder` is the working directory, with state and registry of its own, and Prefect's server is there meanwhile."""
    from prefect.settings import PREFECT_API_URL, PREFECT_FLOWS_HEARTBEAT_FREQUENCY, PREFECT_HOME, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    changes = {PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None, PREFECT_HOME: folder / "prefect"}
    with pytest.MonkeyPatch.context() as patch, temporary_settings(changes):
        patch.chdir(folder)
        patch.setenv("PLIANT_HOME", str(folder / "home"))
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlruns' / 'mlflow.db'}")
        with prefect_test_harness(server_startup_timeout=90):
            patch.setenv("PREFECT_API_URL", str(PREFECT_API_URL.value()))
            yield folder


def worked(capsys: Any, flow: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """What the flow released and which stages did work, by the lines that they print; reading texts is none."""
    capsys.readouterr()
    released = flow()
    lines = capsys.readouterr().err.splitlines()
    stages = [line.removesuffix(": started") for line in lines if line.endswith(": started")]
    return released, [name for name in stages if name != "texts"]


def versions(system: str, alias: str = CHAMPION) -> dict[str, int]:
    """Of the system's registered models, those under this alias."""
    return release.open_registry(settings.read(), f"pliant-{system}").versions(f"pliant-{system}-", alias)


def last_lines(program: str, folder: Path, count: int = 1) -> list[str]:
    """That a program of its own prints: here it is someone else who has MLflow. Fails with what it has to say."""
    told = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=120)
    assert told.returncode == 0, told.stderr
    return told.stdout.splitlines()[-count:]
