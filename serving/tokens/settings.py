"""The settings of the tokens service, besides those of every service (serving/settings.py)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pliant.errors import InputError
from pliant.models.image import MAX_PIXELS
from pliant.registry import names
from pliant.serving.loop.settings import OutcomeSettings
from pliant.serving.settings import check_margin
from pliant.tokens.policies import CHOICES, SERVED


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensSettings(OutcomeSettings):
    """The settings of the tokens service."""

    SYSTEM: ClassVar[str] = "tokens"
    CHOICES: ClassVar[Mapping[str, Collection[str]]] = {"policy": SERVED}
    POSITIVE: ClassVar[tuple[str, ...]] = (*OutcomeSettings.POSITIVE, "max_image_pixels", "max_images")

    experiment: str = names.experiment("tokens")
    policy: str = "default"  # one of pliant/tokens/policies.py
    gamma: int | None = None  # Gamma of a policy that keeps to one.
    margin: float = 0.15  # Share of the time to a deadline that is reserved for the way back.
    max_image_pixels: int = MAX_PIXELS  # Pixels (width times height) that a picture may have.
    max_images: int = 64  # Pictures in one request of the Open Inference Protocol.

    def __post_init__(self) -> None:
        OutcomeSettings.__post_init__(self)
        check_margin(self.margin)

    def used(self, profiled: Sequence[int]) -> Sequence[int]:
        """Return the gammas that the policy may use, of the profiled ones.

        Raises `InputError` for a gamma that was not profiled.
        """
        gamma = CHOICES[self.policy].gamma if self.gamma is None else self.gamma
        if gamma is None:
            return profiled
        if gamma not in profiled:
            raise InputError("PLIANT_GAMMA", gamma, f"one of the profiled {list(profiled)}")
        return (gamma,)


SETTINGS = TokensSettings
