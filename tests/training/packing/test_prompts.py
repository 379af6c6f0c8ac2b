"""Prompts come from files by their usual columns, or the sentence says what is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pliant.errors import InputError
from pliant.training.packing.prompts import load


def write(folder: Path, *rows: dict) -> str:
    path = folder / "my asks.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"json:{path}"


def test_a_column_of_prompts_is_read_without_empty_ones_under_the_files_name(tmp_path):
    name, prompts = load(
        write(tmp_path, {"prompt": "a", "text": "x"}, {"prompt": " "}, {"prompt": None}, {"prompt": "b"})
    )
    assert (name, prompts) == ("my-asks", ("a", "b"))


def test_an_instruction_is_followed_by_what_it_is_about(tmp_path):
    _, prompts = load(write(tmp_path, {"instruction": "Sum.", "input": "1 2"}, {"instruction": "Sing.", "input": ""}))
    assert prompts == ("Sum.\n1 2", "Sing.")


def test_a_parquet_file_is_read(tmp_path):
    import datasets

    datasets.Dataset.from_dict({"question": ["why?", "how?"]}).to_parquet(tmp_path / "q.parquet")
    assert load(f"parquet:{tmp_path / 'q.parquet'}") == ("q", ("why?", "how?"))


def test_what_cannot_be_read_is_told_in_a_sentence(tmp_path):
    with pytest.raises(InputError, match="a readable csv file"):
        load(f"csv:{tmp_path / 'none.csv'}")
    (tmp_path / "bad.parquet").write_text("no parquet")
    with pytest.raises(InputError, match="a readable parquet file"):
        load(f"parquet:{tmp_path / 'bad.parquet'}")
    with pytest.raises(InputError, match="such that one is prompt or instruction"):
        load(write(tmp_path, {"words": "a"}))
    with pytest.raises(InputError, match=r"line 1 .*3.* is no text"):
        load(write(tmp_path, {"prompt": 3}))
