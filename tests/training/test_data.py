"""Image data sets: the embedded digits, files and folders written by the tests, and the error without a network."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pliant.errors import InputError
from pliant.models.image import MAX_PIXELS, decode
from pliant.training import data
from pliant.training.data import labelled_files
from pliant.training.groups import Repeats
from pliant.training.pictures import AUGMENTATIONS, ArrayImages, HeldImages, JoinedImages, augmentation, crops
from tests.fixtures.watched import WatchedImages


def png(shade: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((8, 8, 3), shade, np.uint8)).save(file, "PNG")
    return file.getvalue()


def write(path: Path, shades=range(20), labels=None, features: bool = True) -> Path:
    """Write a parquet file as `datasets` would (with features), or as other programs would."""
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    rows = {
        "image": pa.array([{"bytes": png(shade), "path": None} for shade in shades], kind),
        "label": labels or [i % 2 for i in range(len(shades))],
        "colour": ["red" if i % 3 else "blue" for i in range(len(shades))],
    }
    table = pa.table(rows)
    if features:
        names = {"names": ["cat", "dog"], "_type": "ClassLabel"}
        described = {"image": {"_type": "Image"}, "label": names, "colour": {"dtype": "string", "_type": "Value"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": described}})})
    pq.write_table(table, path)
    return path


def split_parts(split: data.Split) -> list[np.ndarray]:
    return [split.fit, split.profiling, split.test]


def test_all_digits_tasks_share_one_split_so_that_no_tasks_test_images_train_the_foundation():
    splits = [split_parts(data.digits(task, seed=3).split) for task in data.DIGIT_TASKS]
    assert all(np.array_equal(a, b) for other in splits[1:] for a, b in zip(splits[0], other, strict=True))


def test_a_parquet_file_of_pictures_is_read_by_its_content_alone(tmp_path):
    """It was once found by its path as a pattern, and read again only if its time stamp was another one."""
    path = tmp_path / "cats[1],a.parquet"
    write(tmp_path / "cats1,a.parquet", shades=range(100, 120))
    for first in (0, 40):
        write(path, shades=range(first, first + 20))
        os.utime(path, (1e9, 1e9))
        assert shades(data.load(f"parquet:{path}"), np.arange(20)) == set(range(first, first + 20))


@pytest.mark.parametrize("labels", [[None, "a"] * 10, [0.5, 1.5] * 10, [-1, 0] * 10])
def test_labels_that_are_none_are_refused_with_their_rows(tmp_path, labels):
    """Missing ones once ended in a traceback, or were a class."""
    with pytest.raises(InputError, match=r"10 broken rows: row 0 .*|20 broken rows: row 0 .label 0.5 is a fraction"):
        data.parquet(write(tmp_path / "c.parquet", labels=labels, features=labels[0] == -1))


def shades(cats: data.ImageData, part: np.ndarray) -> set[int]:
    return set(cats.images.batch(part, 8)[:, 0, 0, 0].tolist())


@given(st.integers(5, 300), st.integers(4, 400), st.integers(0, 5))
def test_a_cut_split_keeps_as_many_as_it_is_told_and_the_shares_of_the_whole(count, limit, seed):
    whole = data.split(count, seed)
    try:
        some = data.cut(whole, limit)
    except InputError:
        assert limit < 7  # then one of the parts may be left without any
        return
    assert sum(map(len, split_parts(some))) == min(limit, count)
    for kept, before in zip(split_parts(some), split_parts(whole), strict=True):
        assert np.array_equal(kept, before[: len(kept)])
        assert len(kept) == pytest.approx(len(before) * min(1, limit / count), abs=1.01)


def test_a_fingerprint_follows_content_labels_and_split_but_not_the_place(tmp_path):
    """It was once that of `datasets`: another one for a copy, and the same for another label column or seed."""
    first = write(tmp_path / "a.parquet")
    mark = data.parquet(first).fingerprint
    assert data.parquet(write(tmp_path / "b.parquet")).fingerprint == mark
    others = [
        data.parquet(write(tmp_path / "c.parquet", shades=[99, *range(1, 20)])),
        data.parquet(write(tmp_path / "d.parquet", labels=[1, 1, *([0, 1] * 9)])),
        data.parquet(first, label="colour"),
        data.parquet(first, seed=1),
        data.parquet(first, limit=10),
    ]
    assert len({mark, *(other.fingerprint for other in others)}) == 6


def test_an_image_folder_gives_one_class_per_sub_folder(tmp_path):
    for name, shade in (("dark", 10), ("light", 240)):
        (tmp_path / "shades" / name).mkdir(parents=True)
        for i in range(5):
            (tmp_path / "shades" / name / f"{i}.png").write_bytes(png(shade + i))
    shades = data.load(f"folder:{tmp_path / 'shades'}")
    assert (shades.name, shades.classes, len(shades.images)) == ("shades", ("dark", "light"), 10)
    bright = shades.images.batch(np.arange(10), 4)[:, 0, 0, 0] > 128
    assert bright.astype(int).tolist() == shades.labels.tolist()
    before = shades.fingerprint
    (tmp_path / "shades" / "dark" / "0.png").write_bytes(png(99))
    assert data.folder(tmp_path / "shades").fingerprint != before


def test_equal_pixels_in_other_files_are_one_group(tmp_path):
    """A copy that was saved in another format stands on one side of the split only."""
    for name in ("dark", "light"):
        (tmp_path / name).mkdir()
    for shade in range(40):
        picture = Image.fromarray(np.full((8, 8), shade, np.uint8))
        picture.convert("RGB").save(tmp_path / "dark" / f"{shade}.png")
        picture.save(tmp_path / ("dark" if shade % 2 else "light") / f"copy {shade}.bmp")
    loaded = data.load(f"folder:{tmp_path}")
    fit, profiling, test = (shades(loaded, part) for part in split_parts(loaded.split))
    assert fit.isdisjoint(profiling | test)
    assert profiling.isdisjoint(test)
    assert len(loaded.split.test) == len(test)
    assert loaded.repeats == Repeats(80, 40, 20)


def test_a_test_part_of_the_data_s_own_stays_and_its_pictures_are_not_trained_on(tmp_path):
    for part, some in (("train", range(30)), ("test", range(25, 35))):
        for name in ("dark", "light"):
            (tmp_path / part / name).mkdir(parents=True)
        for shade in some:
            (tmp_path / part / ("dark" if shade % 2 else "light") / f"{shade}.png").write_bytes(png(shade))
    loaded = data.load(f"folder:{tmp_path}")
    assert shades(loaded, loaded.split.test) == set(range(25, 35))
    assert shades(loaded, np.concatenate([loaded.split.fit, loaded.split.profiling])) == set(range(25))
    assert loaded.repeats == Repeats(40, 35, 0, 5)


def test_a_file_that_is_no_parquet_and_a_folder_without_images_are_refused(tmp_path):
    """Both once ended in a traceback of the reader."""
    (tmp_path / "bad.parquet").write_bytes(b"nonsense")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"bad\.parquet .Parquet magic bytes .*, but must be a readable parquet file"):
        data.load(f"parquet:{tmp_path / 'bad.parquet'}")
    with pytest.raises(InputError, match="empty, but must be a folder with one sub-folder of images per class"):
        data.load(f"folder:{tmp_path / 'empty'}")


def test_a_column_that_is_missing_or_holds_no_pictures_is_refused(tmp_path):
    path = write(tmp_path / "cats.parquet")
    with pytest.raises(InputError, match="column is kind, but must be one of image, label, colour"):
        data.parquet(path, label="kind")
    with pytest.raises(InputError, match="column is label, but must be one of images"):
        data.parquet(path, image="label", label="colour")


def write_pictures(folder: Path, *names: str) -> Path:
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
    write_pictures(tmp_path, "train/a.png", "cat/b.png", "cat/deep/er/c.png", "007/d.png")
    (tmp_path / "cat" / "README.txt").write_text("how they were taken")
    (tmp_path / "cat" / ".DS_Store").write_bytes(b"x")
    assert found(tmp_path) == {
        "007/d.png": ("fit", "007"),
        "cat/b.png": ("fit", "cat"),
        "cat/deep/er/c.png": ("fit", "cat"),
        "train/a.png": ("fit", "train"),
    }


def test_a_test_and_a_validation_part_that_are_there_are_used(tmp_path):
    write_pictures(tmp_path, *many("train/cat", "train/dog"), *many("test/cat", "test/dog", "val/dog", count=3))
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
        labelled_files(write_pictures(tmp_path, *names))


def test_links_are_followed_and_a_loop_of_them_is_refused(tmp_path):
    write_pictures(tmp_path, "elsewhere/a.png", "data/cat/b.png")
    (tmp_path / "data" / "dog").symlink_to(tmp_path / "elsewhere")
    assert found(tmp_path / "data") == {"cat/b.png": ("fit", "cat"), "dog/a.png": ("fit", "dog")}
    (tmp_path / "data" / "cat" / "again").symlink_to(tmp_path / "data")
    with pytest.raises(InputError, match="again, a link to a folder that it lies in"):
        labelled_files(tmp_path / "data")


def test_all_broken_files_are_named_with_their_reasons(tmp_path):
    write_pictures(tmp_path, *many("cat", "dog"))
    whole = (tmp_path / "cat" / "00.png").with_name("0.png").read_bytes()
    (tmp_path / "cat" / "cut.png").write_bytes(whole[:-40])
    (tmp_path / "dog" / "phone.heic").write_bytes(b"\0\0\0\x18ftypheic")
    (tmp_path / "dog" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    with pytest.raises(InputError) as refused:
        data.folder(tmp_path)
    for part in ("3 broken files", "cut.png (image is not readable", "phone.heic (image is", "gone.png (No such file"):
        assert part in str(refused.value)


def test_a_picture_that_the_data_set_reads_otherwise_than_a_service_is_refused(tmp_path, monkeypatch):
    write_pictures(tmp_path, *many("cat", "dog"))
    monkeypatch.setattr(
        data.FileImages, "batch", lambda _self, index, size: np.zeros((len(index), size, size, 3), np.uint8)
    )
    with pytest.raises(InputError, match="has other pixels, but must be read as a service reads it"):
        data.load(f"folder:{tmp_path}")


RAMP = torch.linspace(0, 1, 16).expand(64, 3, 16, 16)  # brighter from left to right

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)


@given(st.lists(st.lists(st.integers(0, 11), min_size=1, max_size=6), min_size=1, max_size=6))
def test_any_batches_are_the_same_with_and_without_holding_and_each_picture_is_decoded_once(batches):
    counted = WatchedImages(ArrayImages(PIXELS))
    held = HeldImages(counted)
    for batch in batches:
        index = np.array(batch)
        assert np.array_equal(held.batch(index, 4), ArrayImages(PIXELS).batch(index, 4))
    assert set(counted.seen) == {i for batch in batches for i in batch}
    assert set(counted.seen.values()) == {1}


def test_pictures_too_many_to_be_held_are_decoded_each_time():
    counted = WatchedImages(ArrayImages(PIXELS))
    held = HeldImages(counted, max_bytes=12 * 8 * 8 * 3 - 1)
    for _ in range(3):
        held.batch(np.array([5]), 8)
    assert counted.seen == {5: 3}


@given(st.lists(st.integers(0, 16), min_size=1, max_size=12))
def test_joined_pictures_are_the_first_ones_and_then_the_second(index):
    more = tuple(PIXELS[number, : 4 + number] for number in range(5))  # of different sizes
    joined = JoinedImages(ArrayImages(PIXELS), ArrayImages(more))
    assert len(joined) == 17
    for row, pixels in zip(index, joined.batch(np.array(index), 4), strict=True):
        alone = ArrayImages(PIXELS).file(row) if row < 12 else ArrayImages(more).file(row - 12)
        assert np.array_equal(pixels, decode(alone, 4, MAX_PIXELS))
        assert joined.file(row) == alone


@pytest.mark.parametrize("name", [name for name in AUGMENTATIONS if name != "none"])
def test_each_sample_is_moved_its_own_way_and_keeps_its_shape(name):
    torch.manual_seed(0)
    images = torch.rand(1, 3, 16, 16).expand(4, -1, -1, -1)
    moved = augmentation(name)(images)
    assert moved.shape == images.shape
    assert not torch.allclose(moved[0], moved[1])


def test_a_crop_shows_at_least_its_share_of_the_width_and_nothing_from_outside():
    torch.manual_seed(0)
    moved = crops(RAMP, min_share=0.6)
    assert moved.min() >= 0
    assert moved.max() <= 1
    shown = (moved[..., 0] - moved[..., -1]).abs().mean(dim=(1, 2))
    assert shown.min() > 0.5
    assert shown.max() > 0.9
