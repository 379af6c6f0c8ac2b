"""Notices who reports a service's own answers as their labels, from which nothing can be learnt.

Such labels agree with the answers more often than confidences allow. The test is a bet on agreement (pliant/betting.py): as
long as a tenant's labels disagree at least half as often as the answers' confidences say, it is named with a probability of
at most 1%, over all time (Ville's inequality). Labels of a regression are not tested.
"""

from __future__ import annotations

from collections.abc import Iterable

from pliant.betting import Bets
from pliant.outcomes.labels import LabelRecord

TARGET = 100.0  # evidence at which a tenant is named
HONEST = 0.5  # of the disagreement that confidences promise: they may be too low by as much


class Echoes:
    """The evidence against each tenant, and the tenants that are `named`."""

    def __init__(self) -> None:
        self._bets: dict[str, Bets] = {}
        self.named: dict[str, int] = {}
        """Tenant -> labels after which it was named; in that order."""

    def add(self, tenant: str, agreed: bool, confidence: float) -> bool:
        """Count a label; return whether its tenant is named now. `confidence`: of the answer that it is of."""
        if tenant in self.named:
            return False
        bets = self._bets.setdefault(tenant, Bets())
        bets.add(agreed, HONEST * (1 - confidence))
        if bets.evidence < TARGET:
            return False
        self.named[tenant] = bets.labels
        return True


def echoing(records: Iterable[LabelRecord]) -> dict[str, int]:
    """Return the tenants whose labels are the service's own answers, and after how many labels each was named."""
    echoes = Echoes()
    for record in records:
        if isinstance(record.label, str):
            echoes.add(record.tenant, record.label == record.predicted, record.confidence)
    return echoes.named
