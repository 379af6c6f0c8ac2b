"""What is known of the request that is being handled: its key, which arm of a trial answers it, and whether it is a copy.

Context variables, so that the tasks that a request starts know it, too, and nothing has to be handed through.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from uuid import uuid4

_KEY: ContextVar[str] = ContextVar("key of the request", default="")
_TO_CHALLENGER: ContextVar[bool] = ContextVar("whether the request goes to the challenger", default=False)
_COPY: ContextVar[bool] = ContextVar("whether this is a copy, whose answer nobody gets", default=False)


def set_request_key(key: str) -> None:
    """Note the key by which a client's requests stay with one arm, until the end of the request's task."""
    _KEY.set(key)


def request_key() -> str:
    """Return the request's key; a new one for a request without."""
    return _KEY.get() or uuid4().hex


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
def _set(variable: ContextVar[bool], value: bool) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
