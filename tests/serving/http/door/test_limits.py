"""How many files a service may open, and how many connections that allows."""

from __future__ import annotations

import resource

import pytest

from pliant.serving.http.door import limits
from pliant.serving.http.door.limits import NOFILE, DoorLimits, most_connections, open_files, raise_open_files

INFINITE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "files", "raised"),
    [
        (1024, 4096, 4096, True),
        (4096, 4096, 4096, False),
        (1024, 10 * NOFILE, NOFILE, True),
        (1024, INFINITE, NOFILE, True),
        (NOFILE, 10 * NOFILE, NOFILE, False),
        (2 * NOFILE, 10 * NOFILE, NOFILE, False),
        (INFINITE, INFINITE, NOFILE, False),
    ],
)
def test_the_limit_of_open_files_is_raised_as_far_as_the_system_lets_it_and_never_lowered(
    soft, hard, files, raised, monkeypatch
):
    changes = []
    monkeypatch.setattr(limits.resource, "getrlimit", lambda which: {resource.RLIMIT_NOFILE: (soft, hard)}[which])
    monkeypatch.setattr(limits.resource, "setrlimit", lambda which, both: changes.append((which, both)))
    assert open_files() == raise_open_files() == files
    assert changes == ([(resource.RLIMIT_NOFILE, (files, hard))] if raised else [])


def test_connections_take_half_of_the_open_files_at_most():
    usual = DoorLimits().connections
    assert most_connections(usual, NOFILE) == usual == 1024
    assert [most_connections(100, files) for files in (199, 200, 202)] == [99, 100, 100]


def test_the_usual_limits_are_those_of_the_documents():
    assert DoorLimits() == DoorLimits(65_536, 100, 10.0, 75.0, 60.0, 16, 1024)
