"""Schedulers without tenants, so that a test can measure what these cost: they still call the substitute."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class NoFairness:
    """The methods of `Fairness` for a scheduler that knows no tenants."""

    several = contended = False

    def __init__(self, _config: Any = None) -> None: ...

    def join(self, _request: Any, _name: str, _weight: float) -> None: ...

    def leave(self, _request: Any) -> None: ...

    def launch(self, _launch: int, _requests: Any, _service: float, _costs: Any = ()) -> None: ...

    def ended(self, _launch: int, _service: float | None = None) -> None: ...

    def turn(self, _among: Any = None) -> None: ...

    def behind(self) -> None: ...

    def turns(self, _among: Any = None) -> tuple[None]:
        return (None,)

    def order(self) -> list[str]:
        return []

    def value(self, _name: str, _weight: float, utility: float) -> float:
        return utility

    def surplus(self, _name: str, _weight: float, _count: int = 1) -> None: ...

    def received(self, _tenant: str) -> float:
        return 0.0

    def waits(self, _name: str) -> bool:
        return False

    def check(self, _waiting: Any) -> None: ...


@contextmanager
def without_fairness(module: Any) -> Iterator[None]:
    """Let the schedulers that this module builds meanwhile know no tenants."""
    fairness, module.Fairness = module.Fairness, NoFairness
    try:
        yield
    finally:
        module.Fairness = fairness
