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
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pliant.errors import InputError
from pliant.training import data
from pliant.training.groups import Repeats


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


@pytest.mark.parametrize("seed", [0, 1])
def test_a_limit_leaves_every_picture_in_its_split(tmp_path, seed):
    """Limited data were once split anew: a task could test on what its backbone, which has no limit, had seen."""
    path = write(tmp_path / "cats.parquet", shades=range(60))
    whole, some = (data.parquet(path, seed=seed, limit=limit) for limit in (None, 17))
    for kept, all_of_it in zip(split_parts(some.split), split_parts(whole.split), strict=True):
        assert len(kept)
        assert shades(some, kept) <= shades(whole, all_of_it)


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
