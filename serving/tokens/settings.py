"""The settings of the tokens service, besides those of every service (serving/settings.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pliant.errors import InputError
from pliant.models.image import MAX_PIXELS
from pliant.registry import names
from pliant.serving.settings import Margin, OutcomeSettings
from pliant.settings import Count, OneOf
from pliant.tokens.policies import CHOICES, SERVED


class TokensSettings(OutcomeSettings):
    """The settings of the tokens service."""

    SYSTEM: ClassVar[str] = "tokens"

    experiment: str = names.experiment("tokens")
    policy: Annotated[str, OneOf(SERVED)] = "default"
    """Scheduling policy."""
    gamma: int | None = None
    """Setting that the policy keeps to: gamma, or from 101 on the number of an operating point of the profile."""
    margin: Margin = 0.15
    """Share of the time to a deadline that is reserved for the way back."""
    max_image_pixels: Count = MAX_PIXELS
    """Pixels (width times height) that a picture may have."""
    max_images: Count = 64
    """Pictures in one request of the Open Inference Protocol."""

    def used(self, profiled: Sequence[int]) -> Sequence[int]:
        """Return the settings that the policy may use, of the profiled ones.

        Raises `InputError` for one that was not profiled.
        """
        gamma = CHOICES[self.policy].gamma if self.gamma is None else self.gamma
        if gamma is None:
            return CHOICES[self.policy].sees(profiled)
        if gamma not in profiled:
            raise InputError("PLIANT_GAMMA", gamma, f"one of the profiled {list(profiled)}")
        return (gamma,)


SETTINGS = TokensSettings
