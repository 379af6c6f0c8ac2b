"""The settings of the cascade service, besides those of every service (serving/settings.py)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pliant.registry import names
from pliant.serving.settings import Margin, OutcomeSettings
from pliant.settings import Count, OneOf, Share


class CascadeSettings(OutcomeSettings):
    """The settings of the cascade service."""

    SYSTEM: ClassVar[str] = "cascade"

    experiment: str = names.experiment("cascade")
    workers: Count = 1
    """Number of devices, each with its own process."""
    placement: Annotated[str, OneOf(("shared", "own"))] = "shared"
    """Every worker runs every level, or each level has workers of its own."""
    margin: Margin = 0.15
    """Share of the time to a deadline that is reserved for the way back."""
    max_texts: Count = 256
    """Texts in one request."""
    agreement_share: Share = 0.01
    """Share of the early answers that the large model reads as well."""


SETTINGS = CascadeSettings
