"""How much one tenant may add to what a service decides by evidence: the one place for trials, labels, alarms and lessons.

Labels that teach are a set, of which no tenant gives more than `SHARE` (`largest_equal_part`). A sequential test is not
protected by that: a quarter of false outcomes decides it as surely as all of them. So tenants are dealt into 1 / `SHARE`
groups, and evidence counts only as far as it holds without any one of these (`Groups`): what a tenant makes up is in one
group, and the rest is an e-process of the others. A decision needs two groups that show the same, so nobody decides alone.

The operator exempts tenants by name. Of a service without keys, with keys of one tenant alone, or of a tenant that may
administer it, nothing is capped: "" stands for all these.
"""

from __future__ import annotations

from collections.abc import Collection
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

SHARE = 0.25  # the most of one tenant that is not trusted
GROUPS = round(1 / SHARE)
ANONYMOUS = "anonymous"  # stands for clients without a key where tenants are listed
NOBODY = -1  # the group of what is not capped


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
