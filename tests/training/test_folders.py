"""Folders of labelled pictures: what is a class, what is a part of the data, and what is refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pliant.errors import InputError
from pliant.training import data
from pliant.training.data import labelled_files


def write(folder: Path, *names: str) -> Path:
    """Write a picture of its own at each of these paths."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng([*name.encode()]).integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(path)
    return folder


def many(*folders: str, count: int = 10) -> list[str]:
    return [f"{folder}/{number}.png" for folder in folders for number in range(count)]


def found(folder: Path) -> dict[str, tuple[str, str]]:
    return {str(file.path.relative_to(folder)): (file.part, file.label) for file in labelled_files(folder)}


def test_a_sub_folder_is_a_class_whatever_its_name_and_depth(tmp_path):
    write(tmp_path, "train/a.png", "cat/b.png", "cat/deep/er/c.png", "007/d.png")
    (tmp_path / "cat" / "README.txt").write_text("how they were taken")
    (tmp_path / "cat" / ".DS_Store").write_bytes(b"x")
    assert found(tmp_path) == {
        "007/d.png": ("fit", "007"),
        "cat/b.png": ("fit", "cat"),
        "cat/deep/er/c.png": ("fit", "cat"),
        "train/a.png": ("fit", "train"),
    }


def test_a_test_and_a_validation_part_that_are_there_are_used(tmp_path):
    write(tmp_path, *many("train/cat", "train/dog"), *many("test/cat", "test/dog", "val/dog", count=3))
    loaded = data.folder(tmp_path)
    names = [str(file.path.relative_to(tmp_path)) for file in labelled_files(tmp_path)]
    for rows, part, count in (
        (loaded.split.fit, "train", 20),
        (loaded.split.test, "test", 6),
        (loaded.split.profiling, "val", 3),
    ):
        assert len(rows) == count and all(names[row].startswith(f"{part}/") for row in rows)
    assert loaded.classes == ("cat", "dog")
    assert [loaded.classes[loaded.labels[row]] for row in range(len(names))] == [name.split("/")[1] for name in names]


@pytest.mark.parametrize(
    ("names", "refused"),
    [
        (["cat/a.png", "b.png"], r"b\.png, which lies in no class's folder"),
        (["train/cat/a.png", "test/cat/b.png", "dog/c.png"], "where dog stands beside test, train"),
        (["test/cat/a.png"], "which has no folder train"),
        (["train/cat/a.png", "test/dog/b.png"], "where dog is in no train folder"),
        ([], "but must be a folder with one sub-folder of images per class"),
    ],
)
def test_any_other_layout_is_refused_by_name(tmp_path, names, refused):
    with pytest.raises(InputError, match=refused):
        labelled_files(write(tmp_path, *names))


def test_links_are_followed_and_a_loop_of_them_is_refused(tmp_path):
    write(tmp_path, "elsewhere/a.png", "data/cat/b.png")
    (tmp_path / "data" / "dog").symlink_to(tmp_path / "elsewhere")
    assert found(tmp_path / "data") == {"cat/b.png": ("fit", "cat"), "dog/a.png": ("fit", "dog")}
    (tmp_path / "data" / "cat" / "again").symlink_to(tmp_path / "data")
    with pytest.raises(InputError, match="again, a link to a folder that it lies in"):
        labelled_files(tmp_path / "data")


def test_all_broken_files_are_named_with_their_reasons(tmp_path):
    write(tmp_path, *many("cat", "dog"))
    whole = (tmp_path / "cat" / "00.png").with_name("0.png").read_bytes()
    (tmp_path / "cat" / "cut.png").write_bytes(whole[:-40])
    (tmp_path / "dog" / "phone.heic").write_bytes(b"\0\0\0\x18ftypheic")
    (tmp_path / "dog" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    with pytest.raises(InputError) as refused:
        data.folder(tmp_path)
    for part in (
        "with 3 broken files",
        "cut.png (image is not readable",
        "phone.heic (image is",
        "gone.png (No such file",
    ):
        assert part in str(refused.value)


def test_a_picture_that_the_data_set_reads_otherwise_than_a_service_is_refused(tmp_path, monkeypatch):
    write(tmp_path, *many("cat", "dog"))
    monkeypatch.setattr(
        data.FileImages, "batch", lambda _self, index, size: np.zeros((len(index), size, size, 3), np.uint8)
    )
    with pytest.raises(InputError, match="has other pixels, but must be read as a service reads it"):
        data.load(f"folder:{tmp_path}")
