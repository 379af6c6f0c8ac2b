"""What is known of the request that is being handled: its key, whose evidence it is, which arm of a trial answers it, and
whether it is a copy.

Context variables, so that the tasks that a request starts know it, too, and nothing has to be handed through.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

_KEY: ContextVar[str] = ContextVar("key of the request", default="")
_TENANT: ContextVar[str] = ContextVar("tenant whose evidence is capped", default="")
_TO_CHALLENGER: ContextVar[bool] = ContextVar("whether the request goes to the challenger", default=False)
_COPY: ContextVar[bool] = ContextVar("whether this is a copy, whose answer nobody gets", default=False)


def set_request_key(key: str) -> None:
    """Note the key by which a client's requests stay with one arm, until the end of the request's task."""
    _KEY.set(key)


def request_key() -> str:
    """Return the request's key; empty for a request without."""
    return _KEY.get()


def set_evidence_tenant(tenant: str) -> None:
    """Note whose evidence the request is, until the end of its task; "" where that is not capped (pliant/tenants.py)."""
    _TENANT.set(tenant)


def evidence_tenant() -> str:
    """Return whose evidence the request is, as far as that is capped; "" where it is not."""
    return _TENANT.get()


@contextmanager
def evidence_of(tenant: str) -> Iterator[None]:
    """Let what is counted in this context be the evidence of this tenant, where a task of another request counts it."""
    with _set(_TENANT, tenant):
        yield


@contextmanager
def to_challenger(copy: bool = False) -> Iterator[None]:
    """Let the challenger's generation, if there is one, do what is done in this context, and in tasks that it starts.

    `copy`: nobody gets the answer, so nothing is counted for it.
    """
    with _set(_TO_CHALLENGER, True), _set(_COPY, copy):
        yield


@contextmanager
def to_champion_as_copy() -> Iterator[None]:
    """Let the champion's generation answer a copy, which is not counted."""
    with _set(_TO_CHALLENGER, False), _set(_COPY, True):
        yield


def goes_to_challenger() -> bool:
    """Whether the challenger answers what is being handled."""
    return _TO_CHALLENGER.get()


def is_copy() -> bool:
    """Whether what is being handled is a copy: clients, tenants and statistics know nothing of it."""
    return _COPY.get()


@contextmanager
def _set(variable: ContextVar[T], value: T) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
