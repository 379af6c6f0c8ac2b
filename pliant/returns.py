"""Which tenants will be back at once, since their clients send the next request when they have an answer.

A launch is not interrupted. If a device always took what waits, such a tenant would find it taken by others each time that
it comes back, and wait for one of their launches with each of its own. So a device is kept free for a tenant that has
received least, for about as long as its clients usually take, if that is short beside a launch (anticipatory scheduling:
Iyer and Druschel, "Anticipatory Scheduling", SOSP 2001). The tenant pays for the time, so nobody gains a share by it.
Where its clients take longer the launches between two of its own are kept so short, and its own as free of others, that it
comes round as often as its share of a device would allow.

A pure state machine, as schedulers are. With one tenant, or where no request names one, nothing is counted.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from pliant.fairness import Fairness

PATIENCE = 2.0  # times the usual seconds until a tenant is back that a device is kept for it
WORTH = 0.5  # of a usual launch's seconds that this may be
LEARN = 0.2  # weight of the latest return
LIKELY = 0.5  # share of the returns within that time from which on a device is kept
FADE = 1.02  # by which the quickest return grows with each later one
SHORTEST = 1e-4  # seconds that a return counts as, at least
REMEMBERED = 1024  # tenants


@dataclass(slots=True)
class _Tenant:
    present: int = 0  # requests that wait or run
    left: float = -math.inf  # when the last of them ended
    usual: float = 0.0  # geometric mean of the seconds from then to the next one; 0: not known
    quickest: float = math.inf  # the least of the latest of them: what they would be if nobody else was there
    likely: float = 0.0  # running share of those within PATIENCE times the mean


class Returns:
    """The tenants of one scheduler. Times are seconds on the driver's clock and never go back."""

    def __init__(self, fairness: Fairness) -> None:
        self._fairness = fairness
        self._tenants: dict[str, _Tenant] = {}  # the one that came last at the end
        self._owners: dict[int, str] = {}  # of the requests that wait or run
        self._soon: dict[str, float] = {}  # who is probably back by then
        self._since: dict[str, float] = {}  # of these, since when a device is kept for them
        self._launch = 0.0  # mean seconds of a launch
        self._longest = 0.0  # the most that one of the latest took

    def came(self, request: int, name: str, now: float) -> None:
        """Note a request that arrived."""
        if not self._fairness.contended:
            return
        tenant = self._tenants.pop(name, None) or _Tenant()
        self._tenants[name] = tenant
        if len(self._tenants) > REMEMBERED:
            del self._tenants[next(iter(self._tenants))]
        self._owners[request] = name
        if not tenant.present and tenant.left > -math.inf:
            seconds = max(now - tenant.left, SHORTEST)
            tenant.usual = tenant.usual or seconds
            tenant.quickest = min(seconds, FADE * tenant.quickest)
            tenant.likely += LEARN * ((seconds <= PATIENCE * tenant.usual) - tenant.likely)
            tenant.usual *= (seconds / tenant.usual) ** LEARN
        tenant.present += 1
        self._forget(name, now)

    def ended(self, request: int, now: float) -> None:
        """Note that a request was answered or dropped, or that its client has left."""
        name = self._owners.pop(request, None) if self._owners else None
        tenant = self._tenants.get(name) if name is not None else None
        if name is None or tenant is None:
            return
        tenant.present -= 1
        if not tenant.present:
            tenant.left = now
            if tenant.likely >= LIKELY:
                self._soon[name] = now + PATIENCE * tenant.usual

    def launched(self, seconds: float) -> None:
        """Note what a launch is expected to take."""
        self._longest = max(seconds, (1 - LEARN) * self._longest)
        self._launch += (LEARN if self._launch else 1.0) * (seconds - self._launch)

    def until(self, now: float) -> float | None:
        """Return until when the last free device is kept for somebody; None: it is not."""
        for name in [name for name, at in self._soon.items() if at <= now]:
            self._forget(name, now)
        kept: float | None = None
        for name, at in self._soon.items():
            if self._is_short(self._tenants[name]) and self._fairness.is_behind(name):
                self._since.setdefault(name, now)
                kept = max(at, kept or at)
        return kept

    def others(self, own: float, now: float) -> float:
        """Return how many seconds a launch may take between two of a tenant that is expected; 0: none that is behind is.

        `own`: what one request takes by itself.
        """
        behind = [name for name, at in self._soon.items() if at > now and self._fairness.is_behind(name)]
        return max(own, min(self._round(name, own) for name in behind) - own) if behind else 0.0

    def filled(self, names: Collection[str], own: float) -> float:
        """Return how many seconds a launch of these tenants, by itself `own`, may take with requests of others."""
        most = own / self._fairness.share(names)
        for name in names:
            tenant = self._tenants.get(name)
            if tenant is not None and tenant.likely >= LIKELY and not self._is_short(tenant):
                most = min(most, self._round(name, own) - self._longest)
        return most

    def _round(self, name: str, own: float) -> float:
        """Return the seconds from one answer to the next that the tenant would see with its share of a device."""
        return (self._tenants[name].quickest + own) / self._fairness.share((name,))

    def _is_short(self, tenant: _Tenant) -> bool:
        """Whether keeping a device for the tenant costs little beside a launch."""
        return PATIENCE * tenant.usual <= WORTH * self._launch

    def _forget(self, name: str, now: float) -> None:
        """Expect a tenant no longer, and have it pay for the time in which a device was kept for it."""
        until = self._soon.pop(name, None)
        since = self._since.pop(name, None)
        if until is not None and since is not None:
            self._fairness.pay(name, min(now, until) - since)
