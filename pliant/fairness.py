"""Fairness among tenants, of devices and of evidence. Of devices: who has received least, for its weight, comes first.

Each tenant has a counter of the service that it received, divided by its weight, as virtual token counters do (Sheng et
al., "Fairness in Serving Large Language Models", OSDI 2024). A launch is charged when it begins, by its prediction,
shared among its requests, and corrected when it ends. A scheduler asks whose turn it is and decides among the requests
of these tenants exactly as it would if nobody else waited; what they leave over goes to whoever waits.

A launch is not interrupted, so a request that arrives meanwhile waits for its end. `behind` says for whose sake a
scheduler should keep the launches of the others short: those who have received
least, also of those who have nothing waiting just now.

While a tenant has nothing waiting its counter stands still. When it comes back the counter is raised to the least of
those that wait, less `burst`: so somebody within its share is served at once though it comes in bursts, and nobody can
save up more than that. With one tenant, or where no request names one, nothing is counted and nothing is decided.

Knows no clock, no device and no policy; the unit of service is the caller's (seconds of a device, or shares of one).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Turn = frozenset[str] | None
"""The tenants whose turn it is; None: all that wait."""

T = TypeVar("T")

LEAST_WEIGHT = 1e-6
NEWEST = 0.02  # weight of the latest request in a tenant's mean utility, at least

PATIENCE = 2.0  # times the usual seconds until a tenant is back that a device is kept for it
WORTH = 0.5  # of a usual launch's seconds that this may be
LEARN = 0.2  # weight of the latest return
LIKELY = 0.5  # share of the returns within that time from which on a device is kept
FADE = 1.02  # by which the quickest return grows with each later one
SHORTEST = 1e-4  # seconds that a return counts as, at least
REMEMBERED = 1024  # tenants

SHARE = 0.25  # the most of one tenant that is not trusted
GROUPS = round(1 / SHARE)
ANONYMOUS = "anonymous"  # stands for clients without a key where tenants are listed
NOBODY = -1  # the group of what is not capped


@dataclass(frozen=True, slots=True)
class FairnessConfig:
    """`burst`, `slack` and `absence` are in the unit of service, the first two for a weight of 1."""

    burst: float = 0.5  # that a tenant may come back with, behind the least of those that wait
    slack: float = 0.1  # by which counters may differ and count as equal
    remembered: int = 1024  # tenants without waiting requests that are remembered, at most
    absence: float = 10.0  # service to all after which a tenant without waiting requests no longer counts as there


FAIRNESS = FairnessConfig()


@dataclass(slots=True, eq=False)
class _Tenant:
    name: str
    weight: float
    received: float  # service divided by the weight
    left: float  # service to all tenants when its last waiting request ran or left
    waiting: dict[int, None] = field(default_factory=dict)  # ids, the newest last
    utility: float = 0.0  # running mean
    requests: int = 0  # that the mean counts


class Fairness:
    """The counters of all tenants, and which of their requests wait. A pure state machine, as schedulers are."""

    def __init__(self, config: FairnessConfig | None = None) -> None:
        self._config = config or FAIRNESS
        self._tenants: dict[str, _Tenant] = {}
        self._active: dict[str, _Tenant] = {}  # those with waiting requests; a single one stays here without any
        self._owners: dict[int, _Tenant] = {}  # of the waiting requests, while several tenants are known
        self._single: str | None = None  # the name of the only tenant that is known
        self._alone: dict[int, None] = {}  # its waiting requests; so a request of it costs an entry and no more
        self._served = 0.0  # service to all tenants
        self._floor = 0.0  # the least counter of those that waited last; it never falls
        self._charged: dict[int, tuple[float, tuple[tuple[str, float], ...]]] = {}  # launch -> service, tenants' shares
        self._returns = 0  # since idle tenants were last forgotten
        self.several = False
        """Whether requests of more than one tenant wait. To be read only, as the next."""
        self.contended = False
        """Whether more than one tenant is known: those that wait, and those that received service of late."""

    def received(self, tenant: str) -> float:
        """Return the service that the tenant received, divided by its weight; of one unknown: where it would begin."""
        known = self._tenants.get(tenant)
        return self._floor - self._config.burst if known is None else known.received

    def waits(self, name: str) -> bool:
        """Return whether a request of the tenant waits."""
        return name in self._active and bool(self._active[name].waiting)

    def turn(self, among: Collection[str] | None = None) -> Turn:
        """Return the tenants whose counters are least, of those that wait or are `among` them; None if these are all."""
        names = self._active.keys() if among is None else among
        if len(names) < 2:
            return None
        received = {name: self._active[name].received for name in names}
        limit = min(received.values()) + self._config.slack
        turn = frozenset(name for name, service in received.items() if service <= limit)
        return None if len(turn) == len(received) else turn

    def behind(self) -> Turn:
        """Return the tenants whose counters are least, of those that wait or did recently; None if these are all."""
        if len(self._tenants) < 2:
            return None
        least = self._floor - self._config.burst  # no tenant comes back with less
        received = {t.name: max(t.received, least) for t in self._tenants.values() if self._there(t)}
        limit = min(received.values(), default=0.0) + self._config.slack
        behind = frozenset(name for name, service in received.items() if service <= limit)
        return None if len(behind) == len(received) else behind

    def _there(self, tenant: _Tenant) -> bool:
        """Whether the tenant waits, or did recently."""
        return bool(tenant.waiting) or self._served - tenant.left <= self._config.absence

    def is_behind(self, name: str) -> bool:
        """Return whether the tenant, which need not wait, has received less than each of those that wait."""
        others = [tenant.received for tenant in self._active.values() if tenant.name != name]
        return bool(others) and max(self.received(name), self._floor - self._config.burst) < min(others)

    def share(self, names: Collection[str]) -> float:
        """Return the part of the devices that is these tenants' share, of all that wait or did recently."""
        there = {tenant.name: tenant.weight for tenant in self._tenants.values() if self._there(tenant)}
        return sum(there.get(name, 0.0) for name in names) / sum(there.values()) if there else 1.0

    def turns(self, among: Collection[str] | None = None) -> Iterator[Turn]:
        """Yield whose turn it is, then whose it is if they have nothing that can run: everybody's."""
        turn = self.turn(among)
        if turn is not None:
            yield turn
        yield None

    def order(self) -> list[str]:
        """Return the tenants that wait, the least counter first."""
        return sorted(self._active, key=lambda name: (self._active[name].received, name))

    def join(self, request: int, name: str, weight: float) -> None:
        """Note that a request waits."""
        if name == self._single:
            self._alone[request] = None
            return
        tenant = self._active.get(name)
        if tenant is None:
            tenant = self._return(name, weight)
        tenant.waiting[request] = None
        if self.contended:
            self._owners[request] = tenant

    def leave(self, request: int) -> None:
        """Note that a request no longer waits: it was dropped, or its client has left."""
        if not self.contended:
            del self._alone[request]
            return
        tenant = self._owners.pop(request)
        del tenant.waiting[request]
        if not tenant.waiting:
            self._rest(tenant)

    def _rest(self, tenant: _Tenant) -> None:
        """Take a tenant out of those that wait."""
        del self._active[tenant.name]
        self.several = len(self._active) > 1
        tenant.left = self._served
        if not self._active:
            self._floor = max(self._floor, tenant.received)

    def launch(self, launch: int, requests: Sequence[int], service: float, costs: Sequence[float] = ()) -> None:
        """Charge the tenants of the waiting requests that now run for `service`, which is a prediction.

        `costs`: each request's part of it, relative to the others'; empty: equal parts.
        """
        if not self.contended:
            for request in requests:
                del self._alone[request]
            return
        if requests:
            self._charge(launch, requests, service, costs or [1.0] * len(requests))
        for request in requests:
            self.leave(request)

    def charge(self, launch: int, name: str, service: float) -> None:
        """Charge a tenant for a launch that began while no other was known."""
        self._charged[launch] = service, ((name, 1.0),)
        self._receive(self._charged[launch][1], service)

    def pay(self, name: str, service: float) -> None:
        """Charge a tenant for what it cost without running."""
        self._receive(((name, 1.0),), service)

    def ended(self, launch: int, service: float | None = None) -> None:
        """Correct what a launch was charged by what it took; None: the prediction stands."""
        if not self._charged:
            return
        charged = self._charged.pop(launch, None)
        if charged is not None and service is not None:
            self._receive(charged[1], service - charged[0])

    def value(self, name: str, weight: float, utility: float) -> float:
        """Return a new request's utility relative to the mean of its tenant's; as it is while one tenant is known."""
        if name == self._single or not self._tenants:
            return utility
        tenant = self._tenant(name, weight)
        tenant.requests += 1
        tenant.utility += max(NEWEST, 1 / tenant.requests) * (utility - tenant.utility)
        return utility / tenant.utility if tenant.utility > 0 else utility

    def surplus(self, name: str, weight: float, count: int = 1) -> int | None:
        """Return the waiting request to drop for `count` new ones of this tenant where no more may wait.

        It is the newest of the tenant with the most waiting for its weight; None if these are the new ones themselves.
        """
        if not self._active or (len(self._active) == 1 and name in self._active):
            return None
        own = self._active.get(name)
        most, fullest = ((len(own.waiting) if own else 0) + count) / max(weight, LEAST_WEIGHT), None
        for other, tenant in self._active.items():
            if other != name and len(tenant.waiting) / tenant.weight > most:
                most, fullest = len(tenant.waiting) / tenant.weight, tenant
        return None if fullest is None else next(reversed(fullest.waiting))

    def check(self, waiting: Sequence[int]) -> None:
        """Raise `AssertionError` unless exactly these requests wait, each once."""
        listed = [request for tenant in self._active.values() for request in tenant.waiting]
        owned = self._owners if self.contended else self._alone
        assert sorted(listed) == sorted(waiting) == sorted(owned), "the tenants' waiting requests"
        assert self.several == (len(self._active) > 1) and self.contended == (len(self._tenants) > 1), "several tenants"
        assert self.contended == (self._single is None) or not self._tenants, "the only tenant"
        assert all(tenant.waiting or not self.contended for tenant in self._active.values()), (
            "active without a waiting request"
        )
        assert all(self._tenants[name] is tenant for name, tenant in self._active.items()), "active but not known"

    def _tenant(self, name: str, weight: float) -> _Tenant:
        tenant = self._tenants.get(name)
        if tenant is None:
            for other in [other for other in self._active.values() if not other.waiting]:
                self._rest(other)  # it is no longer the single one
            tenant = self._tenants[name] = _Tenant(name, max(weight, LEAST_WEIGHT), self.received(name), self._served)
            if len(self._tenants) == 2:  # note from now on whose requests wait, also of those of the only tenant so far
                self.contended, self._single, self._alone = True, None, {}
                self._owners = {request: each for each in self._active.values() for request in each.waiting}
        return tenant

    def _return(self, name: str, weight: float) -> _Tenant:
        """Take a tenant among those that wait, and raise its counter as the module's head says."""
        if self._active:
            self._floor = max(self._floor, min(tenant.received for tenant in self._active.values()))
        tenant = self._tenant(name, weight)
        tenant.weight = max(weight, LEAST_WEIGHT)
        tenant.received = max(tenant.received, self._floor - self._config.burst)
        self._active[name] = tenant
        self.several = len(self._active) > 1
        self._returns += 1
        if self._returns >= len(self._tenants) > 1:
            self._forget()
        if len(self._tenants) == 1:  # count nothing from now on, as this tenant is the only one that is known
            self.contended, self._single, self._alone, self._owners = False, tenant.name, tenant.waiting, {}
        return tenant

    def _forget(self) -> None:
        """Forget tenants that were not there recently and would come back with as much as unknown ones.

        Of too many others it forgets those that owe least.
        """
        self._returns = 0
        idle = [name for name in self._tenants if name not in self._active]
        least = self._floor - self._config.burst
        owing = [name for name in idle if self._tenants[name].received > least or self._there(self._tenants[name])]
        owing.sort(key=lambda name: (-self._tenants[name].received, name))
        kept = set(owing[: self._config.remembered])
        for name in idle:
            if name not in kept:
                del self._tenants[name]

    def _charge(self, launch: int, requests: Sequence[int], service: float, costs: Sequence[float]) -> None:
        sums: dict[str, float] = {}
        for request, cost in zip(requests, costs, strict=True):
            name = self._owners[request].name
            sums[name] = sums.get(name, 0.0) + cost
        total = sum(sums.values())
        shares = tuple((name, cost / total if total > 0 else 1 / len(sums)) for name, cost in sums.items())
        self._charged[launch] = service, shares
        self._receive(shares, service)

    def _receive(self, shares: Sequence[tuple[str, float]], service: float) -> None:
        self._served += service
        for name, share in shares:
            tenant = self._tenants.get(name)
            if tenant is not None:  # forgotten ones have nothing to correct
                tenant.received += share * service / tenant.weight


@dataclass(slots=True)
class _Returning:
    present: int = 0  # requests that wait or run
    left: float = -math.inf  # when the last of them ended
    usual: float = 0.0  # geometric mean of the seconds from then to the next one; 0: not known
    quickest: float = math.inf  # the least of the latest of them: what they would be if nobody else was there
    likely: float = 0.0  # running share of those within PATIENCE times the mean


class Returns:
    """Which tenants of one scheduler will be back at once. Times are seconds on the driver's clock and never go back.

    Clients send the next request when they have an answer, and a launch is not interrupted. If a device always took what
    waits, such a tenant would find it taken by others each time that it comes back. So a device is kept free for a tenant
    that has received least, for about as long as its clients usually take, if that is short beside a launch (anticipatory
    scheduling: Iyer and Druschel, "Anticipatory Scheduling", SOSP 2001). The tenant pays for the time, so nobody gains a
    share by it. Where its clients take longer the launches between two of its own are kept so short, and its own as free
    of others, that it comes round as often as its share of a device would allow.
    """

    def __init__(self, fairness: Fairness) -> None:
        self._fairness = fairness
        self._tenants: dict[str, _Returning] = {}  # the one that came last at the end
        self._owners: dict[int, str] = {}  # of the requests that wait or run
        self._soon: dict[str, float] = {}  # who is probably back by then
        self._since: dict[str, float] = {}  # of these, since when a device is kept for them
        self._launch = 0.0  # mean seconds of a launch
        self._longest = 0.0  # the most that one of the latest took

    def came(self, request: int, name: str, now: float) -> None:
        """Note a request that arrived."""
        if not self._fairness.contended:
            return
        tenant = self._tenants.pop(name, None) or _Returning()
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

    def _is_short(self, tenant: _Returning) -> bool:
        """Whether keeping a device for the tenant costs little beside a launch."""
        return PATIENCE * tenant.usual <= WORTH * self._launch

    def _forget(self, name: str, now: float) -> None:
        """Expect a tenant no longer, and have it pay for the time in which a device was kept for it."""
        until = self._soon.pop(name, None)
        since = self._since.pop(name, None)
        if until is not None and since is not None:
            self._fairness.pay(name, min(now, until) - since)


def trusted_tenants(setting: str) -> frozenset[str]:
    """Return the tenants that a setting lists, separated by commas; `anonymous` is the tenant without a name."""
    names = {name.strip() for name in setting.split(",")} - {""}
    return frozenset("" if name == ANONYMOUS else name for name in names)


def largest_equal_part(free: int, counts: Collection[int], share: float = SHARE) -> int:
    """Return the largest number of labels such that, where every tenant of `counts` gives at most so many, none gives
    more than `share` of all; `free` are those of tenants without this limit."""

    def fits(limit: int) -> bool:
        taken = [min(count, limit) for count in counts]
        return max(taken, default=0) <= share * (free + sum(taken))

    low, high = 0, max(counts, default=0)
    # What fits is an interval from 0 on: the whole grows ever more slowly with the limit, the limit itself does not.
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


@dataclass(slots=True)
class Groups:
    """Deals tenants into groups in turn, in the order in which they come: the first few have one each."""

    tenants: dict[str, int] = field(default_factory=dict)

    def of(self, tenant: str) -> int:
        """Return the group of a tenant, from 0 on; `NOBODY` for "", whose evidence is not capped."""
        return self.tenants.setdefault(tenant, len(self.tenants) % GROUPS) if tenant else NOBODY


@dataclass(slots=True)
class WithoutEach(Generic[T]):
    """What all outcomes have led to, and what all but those of each group have, of the groups that had any."""

    whole: T
    without: dict[int, T] = field(default_factory=dict)

    @property
    def every(self) -> tuple[T, ...]:
        return (self.whole, *self.without.values())

    def seeing(self, group: int) -> tuple[T, ...]:
        """Return all that an outcome of this group has to be added to."""
        if group != NOBODY and group not in self.without:
            self.without[group] = deepcopy(self.whole)
        return (self.whole, *(each for other, each in self.without.items() if other != group))
