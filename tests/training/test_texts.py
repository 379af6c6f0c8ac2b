"""Labelled texts from files written by the tests: which columns and labels are read, and what is refused."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq

from pliant.training.texts import load

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


def test_a_fingerprint_follows_texts_labels_classes_and_split_alone(tmp_path):
    def mark(seed: int = 0, name: str | None = None, texts=TEXTS, labels=(0, 1) * 10, names=("no", "yes")) -> str:
        return load(write(tmp_path, names, text=texts, label=list(labels)), name, seed).fingerprint

    changed = [mark(seed=1), mark(texts=OTHERS), mark(labels=(1, 0) * 10), mark(names=("yes", "no"))]
    assert mark(name="renamed") == mark()
    assert len({mark(), *changed}) == 5
