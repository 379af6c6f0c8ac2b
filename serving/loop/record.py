"""How challengers are tried by the settings, and what a service reads and writes in the registry about them."""

from __future__ import annotations

from pliant.errors import InputError
from pliant.registry import mlflow_switch
from pliant.registry.mlflow_store import CHALLENGER, MlflowRegistry
from pliant.registry.releases import RegistryRelease
from pliant.rollout.config import RolloutConfig
from pliant.serving.settings import Settings

WAITING, ON_TRIAL = mlflow_switch.WAITING, mlflow_switch.TRIALS
"""State of a challenger that may be tried, and the states (and aliases) of one that is being tried."""


def rollout_config(settings: Settings) -> RolloutConfig | None:
    """Return how challengers are tried; None where they are not. Raises `InputError`."""
    if not settings.try_challengers:
        return None
    return RolloutConfig(
        shadow_share=settings.trial_copied,
        shadow_requests=settings.trial_copies,
        steps=_shares(settings.trial_steps),
        step_requests=settings.trial_requests,
        step_seconds=settings.trial_seconds,
        max_seconds=3600 * settings.trial_hours,
    )


def _shares(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(share) for share in text.split(","))
    except ValueError:
        raise InputError("PLIANT_TRIAL_STEPS", repr(text), "shares of the requests, separated by commas") from None


class TrialRecord:
    """The releases of one system that are tried, in MLflow, for people and for other services to see.

    Every method raises `RegistryError`.
    """

    def __init__(self, registry: MlflowRegistry, system: str) -> None:
        self._registry, self._system = registry, system

    def challenger(self) -> RegistryRelease | None:
        """Return the release that waits to be tried or is being tried."""
        release = self._registry.release(self._system, CHALLENGER)
        present = self._registry.release(self._system)
        if release is None or present is None or release.former != present.number:
            return None
        return release if release.state in (WAITING, *ON_TRIAL) else None

    def champion(self) -> RegistryRelease | None:
        """Return the release that is served."""
        return self._registry.release(self._system)

    def unfinished(self) -> list[RegistryRelease]:
        """Return the releases that are still marked as tried though their trial is over."""
        return mlflow_switch.unfinished(self._registry, self._system)

    def mark(self, release: RegistryRelease, state: str, reason: str) -> None:
        """Write down the state of a release, and why; `shadow` and `canary` are aliases, too."""
        mlflow_switch.label(self._registry, release, state if state in ON_TRIAL else None)
        mlflow_switch.note(self._registry, release, state, reason)

    def promote(self, release: RegistryRelease, reason: str) -> None:
        """Make the release the champion; if it is already, write only what is missing."""
        present = self._registry.release(self._system)
        if present is None or present.number != release.number:
            mlflow_switch.switch(self._registry, self._system, release.number, reason)
        else:
            mlflow_switch.finish(self._registry, self._system, reason)


def trial_record(registry: object, system: str) -> TrialRecord | None:
    """Return the record of a system in a registry; None where that is not MLflow's, and nothing is tried."""
    return TrialRecord(registry, system) if isinstance(registry, MlflowRegistry) else None
