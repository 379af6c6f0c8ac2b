"""`pliant clean` shows what can go, and removes it only where that is said."""

from __future__ import annotations

import os
import tempfile
import time

import pytest

from pliant.registry.store import FolderStore
from tests.fixtures.commands import refused, shown
from tests.fixtures.tokens.samples import tiny_task


@pytest.fixture
def old(here, tmp_path, monkeypatch):
    """A result of a stage that was last used a hundred days ago."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # the machine's may hold what killed services left
    store = FolderStore(here / ".pliant" / "store")
    store.save("tokens/old", tiny_task("letters", ("a", "b"), "0" * 64))
    os.utime(store.path("tokens/old") / "digests.json", (time.time() - 100 * 86_400,) * 2)
    return store.path("tokens/old")


def test_it_shows_and_removes_nothing_without_being_told(old, capsys):
    text = shown(["clean"], capsys)
    assert f"{old}: not used for 100 days" in text and "No longer needed: 1, " in text
    assert old.is_dir()


def test_it_removes_what_it_has_shown(old, capsys):
    assert "Removed 1 of 1." in shown(["clean", "tokens", "--delete"], capsys) and not old.exists()
    assert "Everything is needed." in shown(["clean", "--delete"], capsys)


@pytest.mark.parametrize(
    "words, message",
    [
        (["clean", "sandwiches"], "SYSTEM"),
        (["clean", "--versions", "0"], "PLIANT_KEEP_VERSIONS is '0', but must be at least 1"),
        (["clean", "--days", "nan"], "PLIANT_KEEP_DAYS is 'nan', but must be at least 1"),
    ],
)
def test_mistakes_are_one_sentence(words, message, old, capsys):
    assert message in refused(words, capsys)
