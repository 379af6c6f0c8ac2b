"""The folder store finds by key what was saved by key, and nothing outside of its root."""

from __future__ import annotations

import os

import pytest

from pliant.errors import InputError, RegistryError
from pliant.registry import codec
from pliant.registry.store import FolderStore
from pliant.tokens.artifact import Backbone
from tests.fixtures.tokens.samples import tiny_backbone


def test_what_was_saved_under_a_key_is_there(tmp_path):
    store = FolderStore(tmp_path)
    assert not store.has("tokens/backbone")
    digest = store.save("tokens/backbone", tiny_backbone())
    assert store.has("tokens/backbone")
    assert store.load(Backbone, "tokens/backbone", digest).image_size == 16
    assert store.path("tokens/backbone") == tmp_path / "tokens" / "backbone"


@pytest.mark.parametrize("key", ["", "/etc", "..", "a/../../b", "a//b", ".hidden", "a/.", "a\\b", "a\n", "a\0"])
def test_a_key_that_could_leave_the_root_is_refused(tmp_path, key):
    with pytest.raises(InputError, match="key is"):
        FolderStore(tmp_path).path(key)


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


def test_what_is_kept_under_a_key_is_never_replaced_and_its_notes_are_there_with_it(tmp_path):
    store = FolderStore(tmp_path)
    assert store.kept("tokens/backbone/a") is None
    store.keep("tokens/backbone/a", tiny_backbone(seed=0), {"seconds": 1.5})
    first = store.kept("tokens/backbone/a")
    store.keep("tokens/backbone/a", tiny_backbone(seed=1), {"seconds": 9.0})
    assert store.kept("tokens/backbone/a") == first == (codec.digest(store.path("tokens/backbone/a")), {"seconds": 1.5})
    assert store.load(Backbone, "tokens/backbone/a", first[0]).source == "random weights, seed 0"
    assert [path.name for path in store.path("tokens/backbone").iterdir()] == ["a"]


def test_notes_that_cannot_be_read_are_a_sentence_that_says_what_to_do(tmp_path):
    store = FolderStore(tmp_path)
    store.keep("tokens/backbone/a", tiny_backbone(), {})
    (store.path("tokens/backbone/a") / "notes.json").write_text("{")
    with pytest.raises(RegistryError, match="remove its folder"):
        store.kept("tokens/backbone/a")
