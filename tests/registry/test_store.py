"""The folder store finds by key what was saved by key, and nothing outside of its root."""

from __future__ import annotations

import os

import pytest

from pliant.errors import InputError, RegistryError
from pliant.tokens.artifact import Backbone
from registry.store import FolderStore
from tests.fixtures.tokens.samples import tiny_backbone


def test_what_was_saved_under_a_key_is_there(tmp_path):
    store = FolderStore(tmp_path)
    assert not store.has("tokens/backbone")
    digest = store.save("tokens/backbone", tiny_backbone())
    assert store.has("tokens/backbone")
    assert store.load(Backbone, "tokens/backbone", digest).image_size == 16
    assert store.path("tokens/backbone") == tmp_path / "tokens" / "backbone"


def test_a_key_that_was_never_saved_is_a_sentence(tmp_path):
    with pytest.raises(RegistryError, match="there is no artifact at"):
        FolderStore(tmp_path).load(Backbone, "tokens/backbone")


@pytest.mark.parametrize("key", ["", "/etc", "..", "a/../../b", "a//b", ".hidden", "a/.", "a\\b", "a\n", "a\0"])
def test_a_key_that_could_leave_the_root_is_refused(tmp_path, key):
    with pytest.raises(InputError, match="key is"):
        FolderStore(tmp_path).path(key)


@pytest.mark.parametrize("key", ["a", "A_1", "9/b-c.d", "_x/y"])
def test_a_key_of_plain_names_is_a_folder_under_the_root(tmp_path, key):
    assert FolderStore(tmp_path).path(key) == tmp_path / key


def test_what_is_read_or_touched_is_noted_as_in_use_and_what_is_not_there_is_not(tmp_path):
    store = FolderStore(tmp_path)
    store.touch("tokens/backbone")
    assert not list(tmp_path.iterdir())
    store.save("tokens/backbone", tiny_backbone())
    listed = tmp_path / "tokens" / "backbone" / "digests.json"
    for use in (lambda: store.touch("tokens/backbone"), lambda: store.load(Backbone, "tokens/backbone")):
        os.utime(listed, (1000, 1000))
        assert store.has("tokens/backbone") and listed.stat().st_mtime == 1000
        use()
        assert listed.stat().st_mtime > 1000
