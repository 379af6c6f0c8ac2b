"""A request that is traced, as the code that serves it sees it: it adds spans of what is over, by the service's clock."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, Tracer, set_span_in_context

NANOSECONDS = 1e9
Value = str | int | float | bool | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Traced:
    """A trace under way: `context` holds the span that further ones are children of."""

    tracer: Tracer
    context: Context

    def add(self, name: str, begin: float, end: float, zero: int, values: Mapping[str, Value]) -> Traced:
        """Add a span from `begin` to `end`, in seconds of a clock with this `zero`, and return it for spans within it."""
        at, until = (zero + round(seconds * NANOSECONDS) for seconds in (begin, max(begin, end)))
        span = self.tracer.start_span(name, self.context, SpanKind.INTERNAL, values, start_time=at)
        span.end(until)
        return Traced(self.tracer, set_span_in_context(span, self.context))


def zero_of(now: float) -> int:
    """Return when a clock said 0 that says `now`, in nanoseconds since 1970."""
    return time.time_ns() - round(now * NANOSECONDS)
