"""The settings of services that take labels of earlier answers, besides those of every service (serving/settings.py)."""

from __future__ import annotations

from dataclasses import dataclass

from pliant.errors import InputError
from pliant.serving.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeSettings(Settings):
    """The settings of a service that takes labels.

    Below `home`/outcomes/SYSTEM it keeps what labels need: ids, versions, classes, confidences, tenants and times of the
    latest answers, and the labels. That is nothing that people wrote or sent, so it is on by default. `keep_inputs` keeps
    that, too: the texts or pictures themselves, bounded in number, bytes and days, until `pliant forget`
    removes them. Ask whoever sends them before you set it.
    """

    outcomes_days: float = 30.0  # Days for which an answer can be labelled; 0: nothing is kept on disk.
    keep_inputs: bool = False  # Keep the texts or pictures that people sent, to learn from them with their labels.

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        if not 0 <= self.outcomes_days < float("inf"):
            raise InputError(
                "PLIANT_OUTCOMES_DAYS", self.outcomes_days, "0 for nothing on disk, or positive and finite"
            )
        if self.keep_inputs and not self.outcomes_days:
            raise InputError("PLIANT_KEEP_INPUTS", "true", "false where PLIANT_OUTCOMES_DAYS is 0")
