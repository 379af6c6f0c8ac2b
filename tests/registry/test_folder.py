"""A folder is replaced in one step: what a refusal or a power cut leaves is the former one or the new one, whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pliant.errors import InputError, RegistryError
from pliant.registry import codec
from pliant.registry.folder import replace_folder
from pliant.registry.store import FolderStore
from pliant.tokens.artifact import Backbone
from tests.fixtures.tokens.samples import tiny_backbone

OLD, NEW = {"a": b"old", "b": b"old"}, {"a": b"new", "b": b"new"}


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_former_folder_comes_back_if_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    folder, rename = tmp_path / "kept", Path.rename
    replace_folder(folder, OLD)

    def refuse_the_new(path: Path, target: Path) -> Path:
        if target == folder and content(path) == NEW:
            raise OSError(28, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse_the_new)
    with pytest.raises(RegistryError, match="No space left on device"):
        replace_folder(folder, NEW)
    assert content(folder) == OLD
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_every_file_is_on_the_disk_before_the_folder_is_renamed_and_the_rename_after_it(tmp_path, monkeypatch):
    events, rename, fsync = [], Path.rename, os.fsync

    def note_sync(descriptor: int) -> None:
        events.append(Path(f"/proc/self/fd/{descriptor}").readlink().name.split("-")[0])
        fsync(descriptor)

    def note_rename(path: Path, target: Path) -> Path:
        events.append("rename")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "rename", note_rename)
    replace_folder(tmp_path / "kept", NEW)
    assert sorted(events[:3]) == [".kept", "a", "b"] and events[2] == ".kept"
    assert events[-1] == tmp_path.name and set(events[3:-1]) == {"rename"}


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), OSError("ill"), KeyboardInterrupt()])
def test_what_cannot_be_written_leaves_nothing_behind(tmp_path, monkeypatch, error):
    folder = tmp_path / "kept"
    replace_folder(folder, OLD)

    def fail(descriptor):
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else RegistryError) as caught:
        replace_folder(folder, NEW)
    if isinstance(error, OSError):
        assert str(caught.value) == f"{folder} cannot be written: {error.strerror or 'ill'}"
    assert content(folder) == OLD
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_file_that_is_no_artifacts_is_named_and_stays(tmp_path):
    for name in ("zebra", "apple", "a"):
        (tmp_path / name).write_text("mine")
    with pytest.raises(RegistryError) as caught:
        replace_folder(tmp_path, NEW)
    assert str(caught.value) == f"{tmp_path} holds apple, which is no artifact's: choose another folder"
    assert (tmp_path / "a").read_text() == "mine"


@pytest.mark.parametrize("key", ["", "/etc", "..", "a/../../b", "a//b", ".hidden", "a/.", "a\\b", "a\n", "a\0"])
def test_a_key_that_could_leave_the_root_is_refused(tmp_path, key):
    with pytest.raises(InputError, match="key is"):
        FolderStore(tmp_path).path(key)


def test_what_is_kept_under_a_key_is_never_replaced_and_its_notes_are_there_with_it(tmp_path):
    store = FolderStore(tmp_path)
    assert store.kept("tokens/backbone/a") is None
    store.keep("tokens/backbone/a", tiny_backbone(seed=0), {"seconds": 1.5})
    first = store.kept("tokens/backbone/a")
    store.keep("tokens/backbone/a", tiny_backbone(seed=1), {"seconds": 9.0})
    assert store.kept("tokens/backbone/a") == first == (codec.digest(store.path("tokens/backbone/a")), {"seconds": 1.5})
    assert store.load(Backbone, "tokens/backbone/a", first[0]).source == "random weights, seed 0"
    assert [path.name for path in store.path("tokens/backbone").iterdir()] == ["a"]
