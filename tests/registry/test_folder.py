"""A folder is replaced in one step: what a refusal or a power cut leaves is the former one or the new one, whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pliant.errors import RegistryError
from pliant.registry.folder import replace_folder, sync_tree

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


def test_a_folder_is_made_with_all_that_it_lies_in_and_replaced_where_it_is(tmp_path):
    folder = tmp_path / "a" / "b" / "kept"
    for files in (OLD, NEW):
        replace_folder(folder, files)
        assert content(folder) == files
    assert [path.name for path in folder.parent.iterdir()] == ["kept"]


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


def test_a_tree_is_written_to_the_disk_with_the_names_of_the_four_folders_above_it(tmp_path, monkeypatch):
    folder = tmp_path / "1" / "2" / "3" / "4" / "tree"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "file").write_text("x")
    (folder / "link").symlink_to(tmp_path / "nowhere")
    opened, closed, synced = {}, [], []
    real = os.open, os.close

    def note_open(path, flags):
        descriptor = real[0](path, flags)
        opened[descriptor] = Path(path)
        return descriptor

    def note_close(descriptor):
        if descriptor in opened:  # not what a finalizer of another test's folder closes meanwhile
            closed.append(opened.pop(descriptor))
        real[1](descriptor)

    monkeypatch.setattr(os, "open", note_open)
    monkeypatch.setattr(os, "close", note_close)
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(opened[descriptor]))
    sync_tree(folder)
    above = [folder, *folder.parents[:4]]
    assert synced == [folder / "deep", folder / "deep" / "file", *above] and above[-1] == tmp_path / "1"
    assert closed == synced and not opened


@pytest.mark.parametrize(
    ("error", "why"), [(OSError(5, "Input/output error"), "Input/output error"), (OSError("ill"), "ill")]
)
def test_a_tree_that_the_disk_refuses_is_named_and_its_file_closed(tmp_path, monkeypatch, error, why):
    closed, close = [], os.close

    def fail(descriptor):
        raise error

    def note_close(descriptor):
        closed.append(descriptor)
        close(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    monkeypatch.setattr(os, "close", note_close)
    with pytest.raises(RegistryError) as caught:
        sync_tree(tmp_path)
    assert str(caught.value) == f"{tmp_path} cannot be written to the disk: {why}"
    assert len(closed) == 1
