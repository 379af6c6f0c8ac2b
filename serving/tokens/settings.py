"""The settings of the tokens service, beside those of every service (serving/settings.py)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from pliant.tokens.policies import POLICIES
from registry import names
from serving.settings import Settings, check_margin


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensSettings(Settings):
    SYSTEM: ClassVar[str] = "tokens"
    CHOICES: ClassVar[Mapping[str, Collection[str]]] = {"policy": POLICIES}
    POSITIVE: ClassVar[tuple[str, ...]] = (*Settings.POSITIVE, "max_image_pixels")

    experiment: str = names.experiment("tokens")
    policy: str = "default"  # one of pliant/tokens/policies.py
    gamma: int | None = None  # for the policies that keep to one
    margin: float = 0.15  # share of the time to a deadline that is kept for the way back to the caller
    max_image_pixels: int = 25_000_000

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        check_margin(self.margin)


SETTINGS = TokensSettings
