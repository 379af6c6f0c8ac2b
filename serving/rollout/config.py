"""The settings of trials, as a service has them, and what the controller makes of them."""

from __future__ import annotations

from typing import Protocol

from pliant.errors import InputError
from pliant.rollout.config import RolloutConfig


class TrialSettings(Protocol):
    """The fields of a service's settings that trials go by."""

    @property
    def try_challengers(self) -> bool: ...
    @property
    def trial_copies(self) -> int: ...
    @property
    def trial_copied(self) -> float: ...
    @property
    def trial_steps(self) -> str: ...
    @property
    def trial_requests(self) -> int: ...
    @property
    def trial_seconds(self) -> float: ...
    @property
    def trial_hours(self) -> float: ...


def rollout_config(settings: TrialSettings) -> RolloutConfig | None:
    """Return how challengers are tried; None where they are not. Raises `InputError`."""
    if not settings.try_challengers:
        return None
    config = RolloutConfig(
        shadow_share=settings.trial_copied,
        shadow_requests=settings.trial_copies,
        steps=_shares(settings.trial_steps),
        step_requests=settings.trial_requests,
        step_seconds=settings.trial_seconds,
        max_seconds=3600 * settings.trial_hours,
    )
    config.check()
    return config


def _shares(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(share) for share in text.split(","))
    except ValueError:
        raise InputError("PLIANT_TRIAL_STEPS", repr(text), "shares of the requests, separated by commas") from None
