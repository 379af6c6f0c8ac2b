"""Labelled texts from files written by the tests: which columns and labels are read, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pliant.training.text_data import Shares
from pliant.training.texts import Columns, load

COUNT = 20
TEXTS = [f"text number {i}" for i in range(COUNT)]
OTHERS = [f"another {i}" for i in range(COUNT)]


def write(folder, names: tuple[str, ...] = (), **columns):
    """Write a parquet file and return its address; `names` are the label's classes, as `datasets` stores them."""
    table = pa.table(columns)
    if names:
        features = {key: {"dtype": "string", "_type": "Value"} for key in columns}
        features["label"] = {"names": list(names), "_type": "ClassLabel"}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, folder / "mine.parquet")
    return f"parquet:{folder / 'mine.parquet'}"


def test_class_names_are_those_that_the_file_tells(tmp_path):
    loaded = load(write(tmp_path, ("no", "yes"), text=TEXTS, label=[i % 2 for i in range(COUNT)]))
    assert (loaded.name, loaded.classes, loaded.second, loaded.regression) == ("mine", ("no", "yes"), None, False)
    assert loaded.labels.tolist() == [i % 2 for i in range(COUNT)]


def test_numbers_make_a_regression_where_the_configuration_says_so(tmp_path):
    """Fractions once did by themselves."""
    address = write(tmp_path, sentence1=TEXTS, sentence2=OTHERS, score=[i / 4 for i in range(COUNT)])
    loaded = load(address, columns=Columns(regression=True))
    assert loaded.regression
    assert (loaded.labels.dtype, loaded.labels.tolist()) == (np.float64, [i / 4 for i in range(COUNT)])


@pytest.mark.parametrize(
    "columns",
    [("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("question", "sentence")],
)
def test_a_pair_is_found_by_its_columns_first_text_first(tmp_path, columns):
    """A question with a sentence once lost the question: only the sentence was read."""
    loaded = load(write(tmp_path, **dict(zip(columns, (TEXTS, OTHERS), strict=True)), label=[0, 1] * 10))
    assert loaded.texts(np.array([0, 3])) == [(TEXTS[0], OTHERS[0]), (TEXTS[3], OTHERS[3])]


def test_csv_and_json_lines_and_several_files_read_alike(tmp_path):
    rows = [(text, "ab"[i % 2]) for i, text in enumerate(TEXTS)]
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    lines = [json.dumps({"text": text, "label": label}) for text, label in rows]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    for half in (0, 1):
        (tmp_path / f"{half}.jsonl").write_text("\n".join(lines[half * 10 : half * 10 + 10]))
    loaded = [
        load(f"csv:{tmp_path}/a.csv"),
        load(f"json:{tmp_path}/a.jsonl"),
        load(f"json:{tmp_path}/0.jsonl,{tmp_path}/1.jsonl"),
    ]
    assert len({data.fingerprint for data in loaded}) == 1
    assert loaded[0].first == tuple(TEXTS)


def test_shares_limit_and_name_are_followed(tmp_path):
    loaded = load(write(tmp_path, text=TEXTS, label=[0, 1] * 10), "other", limit=10, shares=Shares(0.5, 0.4))
    assert (loaded.name, [len(part) for part in (loaded.split.fit, loaded.split.profiling, loaded.split.test)]) == (
        "other",
        [3, 2, 5],
    )


def test_a_fingerprint_follows_texts_labels_classes_and_split_alone(tmp_path):
    def mark(seed: int = 0, name: str | None = None, texts=TEXTS, labels=(0, 1) * 10, names=("no", "yes")) -> str:
        return load(write(tmp_path, names, text=texts, label=list(labels)), name, seed).fingerprint

    changed = [mark(seed=1), mark(texts=OTHERS), mark(labels=(1, 0) * 10), mark(names=("yes", "no"))]
    assert mark(name="renamed") == mark()
    assert len({mark(), *changed}) == 5
