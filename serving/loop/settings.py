"""The settings of services that take labels of earlier answers, besides those of every service (serving/settings.py)."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from pliant.errors import InputError
from pliant.serving.settings import Settings
from pliant.settings import NotNegative


class OutcomeSettings(Settings):
    """The settings of a service that takes labels.

    Below `home`/outcomes/SYSTEM it keeps what labels need: ids, versions, classes, confidences, tenants and times of the
    latest answers, and the labels. That is nothing that people wrote or sent, so it is on by default. `keep_inputs` keeps
    that, too: the texts or pictures themselves, bounded in number, bytes and days, until `pliant forget`
    removes them. Ask whoever sends them before you set it.
    """

    outcomes_days: NotNegative = 30.0
    """Days for which an answer can be labelled; 0: nothing is kept on disk."""
    keep_inputs: bool = False
    """Keep the texts or pictures that people sent, to learn from them with their labels."""

    @model_validator(mode="after")
    def _inputs_need_days(self) -> Self:
        if self.keep_inputs and not self.outcomes_days:
            raise InputError("PLIANT_KEEP_INPUTS", "true", "false where PLIANT_OUTCOMES_DAYS is 0")
        return self
