"""The settings of the cascade service, besides those of every service (serving/settings.py)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from pliant.errors import InputError
from pliant.registry import names
from pliant.serving.loop.settings import OutcomeSettings
from pliant.serving.settings import check_margin

PLACEMENTS = ("shared", "own")


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeSettings(OutcomeSettings):
    """The settings of the cascade service."""

    SYSTEM: ClassVar[str] = "cascade"
    CHOICES: ClassVar[Mapping[str, Collection[str]]] = {"placement": PLACEMENTS}
    POSITIVE: ClassVar[tuple[str, ...]] = (*OutcomeSettings.POSITIVE, "workers", "max_texts")

    experiment: str = names.experiment("cascade")
    workers: int = 1  # Number of devices.
    placement: str = "shared"  # Every worker runs every level, or each level has its own (own).
    margin: float = 0.15  # Share of the time to a deadline that is reserved for the way back.
    max_texts: int = 256  # Texts in one request.
    agreement_share: float = 0.01  # Share of the early answers that the large model checks in idle moments.

    def __post_init__(self) -> None:
        OutcomeSettings.__post_init__(self)
        check_margin(self.margin)
        if not 0 <= self.agreement_share <= 1:
            raise InputError("PLIANT_AGREEMENT_SHARE", self.agreement_share, "0 (none) to 1")


SETTINGS = CascadeSettings
