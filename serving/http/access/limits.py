"""What a tenant may use: requests a second, and requests that wait for their answer."""

from __future__ import annotations

from collections import Counter

from pliant.serving.http.access.keys import Tenant
from pliant.serving.http.api_errors import ApiError


class TokenBucket:
    """Lets `rate` things a second pass, and as many as come in one second (at least one) at once."""

    def __init__(self, rate: float, burst: float | None = None) -> None:
        self.rate = rate
        self._burst = max(1.0, rate) if burst is None else burst
        self._left = self._burst
        self._last: float | None = None

    def take(self, now: float, count: float = 1.0) -> float:
        """Let `count` pass and return 0, or return the seconds until as many may pass."""
        if self._last is not None:
            self._left = min(self._burst, self._left + (now - self._last) * self.rate)
        self._last = now
        if self._left >= count:
            self._left -= count
            return 0.0
        return (min(count, self._burst) - self._left) / self.rate


class TenantLimits:
    """Counts the requests of each tenant."""

    def __init__(self) -> None:
        self._buckets: dict[str, TokenBucket] = {}
        self.waiting: Counter[str] = Counter()

    def enter(self, name: str, tenant: Tenant, now: float) -> None:
        """Take in a request, until `leave`. Raises `ApiError` (429) beyond the tenant's limits."""
        waiting = self.waiting[name]
        if tenant.max_waiting is not None and waiting >= tenant.max_waiting:
            message = f"of this key's tenant {waiting} requests wait for their answers, and no more may"
            raise ApiError(429, "too_many_waiting", message)
        if tenant.rate is not None:
            seconds = self._bucket(name, tenant.rate).take(now)
            if seconds:
                message = f"this key's tenant may send {tenant.rate:g} requests a second"
                raise ApiError(429, "rate_limited", message, retry_after=seconds)
        self.waiting[name] += 1

    def leave(self, name: str) -> None:
        """A request that was taken in has ended."""
        self.waiting[name] -= 1

    def _bucket(self, name: str, rate: float) -> TokenBucket:
        bucket = self._buckets.get(name)
        if bucket is None or bucket.rate != rate:
            bucket = self._buckets[name] = TokenBucket(rate)
        return bucket
