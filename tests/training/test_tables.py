"""Tables as people bring them: every kind is read as it is written, or refused with the row and the reason."""

from __future__ import annotations

import datetime
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pliant.errors import InputError
from pliant.training import data
from pliant.training.texts import Columns, load, load_texts

TEXTS = ("one", "two")
NAMED = {"names": ["007", "1.0"], "_type": "ClassLabel"}
PLAIN = "text,label\none,007\ntwo,x\n"


def csv_of(*labels: str) -> bytes:
    return ("text,label\n" + "".join(f"{text},{label}\n" for text, label in zip(TEXTS, labels, strict=True))).encode()


def lines(*labels: str) -> bytes:
    return "\n".join(
        f'{{"text": "{text}", "label": {label}}}' for text, label in zip(TEXTS, labels, strict=True)
    ).encode()


def parquet_of(labels, texts=TEXTS, **features) -> bytes:
    table, file = pa.table({"text": texts, "label": labels}), io.BytesIO()
    if features:
        known = {"text": {"dtype": "string", "_type": "Value"}, "label": features}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": known}})})
    pq.write_table(table, file)
    return file.getvalue()


def not_utf8() -> pa.Array:
    return pa.Array.from_buffers(pa.string(), 2, pa.array([b"one", b"caf\xe9"], pa.binary()).buffers())


REFUSED = [
    # name, scheme, content, what the sentence says
    ("semicolons", "csv", b"text;label\none;a\ntwo;b\n", "fields separated by semicolons"),
    ("tabs", "csv", b"text\tlabel\none\ta\n", "fields separated by tabs"),
    ("Excel's first line", "csv", b"sep=;\ntext;label\none;a\n", "fields separated by semicolons"),
    ("UTF-16", "csv", PLAIN.encode("utf-16"), "UTF-16: save it as UTF-8"),
    ("UTF-16 of the other order", "csv", b"\xfe\xff" + PLAIN.encode("utf-16-be"), "UTF-16: save it as UTF-8"),
    ("UTF-16 without a mark", "csv", PLAIN.encode("utf-16-le"), "a name that is not UTF-8"),
    ("Latin-1", "csv", "text,label\none,a\ncafé,b\n".encode("latin-1"), r"line 3 \(the byte 0xe9 is not UTF-8\)"),
    ("Latin-1 in a label", "csv", "text,label\none,é\ntwo,b\n".encode("latin-1"), r"line 2 \(the byte 0xe9 is not UTF-8\)"),
    ("Latin-1 in the header", "csv", "text,größe\none,a\n".encode("latin-1"), "a name that is not UTF-8"),
    ("a compressed file", "csv", b"\x1f\x8b\x08\0\0", "compressed: unpack it"),
    ("a workbook", "csv", b"PK\x03\x04abc", "a workbook: save it as CSV"),
    ("parquet as CSV", "csv", parquet_of(["a", "b"]), "use parquet:PATH"),
    ("nothing", "csv", b"", "empty"),
    ("an empty line", "csv", b"\n", "empty"),
    ("an empty list", "json", b"[]", "empty"),
    ("a header alone", "csv", b"text,label\n", "without rows"),
    ("a field too many", "csv", b"text,label\none,a\ntwo,b,c\n", r"1 broken rows: line 3 \(3 fields in place of 2\)"),
    ("a field too few", "csv", b"text,label\none,a\ntwo\n", r"line 3 \(1 fields in place of 2\)"),
    ("a row after one of three lines", "csv", b'text,label\n"a\nb\nc",a\ntwo\n', r"line 5 \(1 fields"),
    ("a quote that stays open", "csv", b'text,label\none,a\n"two,b\nthree,c\n', r"line 3 \(unexpected end of data"),
    ("a quote that ends too early", "csv", b'text,label\n"one"x,a\ntwo,b\n', r"line 2 \(',' expected after"),
    ("no text", "csv", b"text,label\n,a\ntwo,b\n", r"line 2 \(an empty text\)"),
    ("spaces for a text", "csv", b"text,label\none,a\n  ,b\n", r"line 3 \(an empty text\)"),
    ("no label", "csv", csv_of("", "b"), r"line 2 \(no label\)"),
    ("spaces for a label", "csv", csv_of("a", "  "), r"line 3 \(no label\)"),
    ("neither", "csv", b"text,label\n,\ntwo,b\n", r"line 2 \(no label, an empty text\)"),
    ("many broken rows", "csv", b"text,label\n" + b"x\n" * 25, r"25 broken rows: line 2 .*; line 11 .* and 15 more"),
    ("a name twice", "csv", b"text,label,label\none,a,b\n", "label is there twice"),
    ("no header", "csv", b"one,a\ntwo,b\n", "the label column is one, a, but must be one of label"),
    ("a name with a space", "csv", b"text, label\none,a\n", "the label column is text,  label, but"),
    ("two columns of labels", "csv", b"text,score,target\none,1,a\n", "score or target of .*named by columns.label"),
    ("two columns of texts", "csv", b"text,utterance,label\none,x,a\n", "text or utterance of .*named by columns.text"),
    ("two pairs", "csv", b"text1,text2,text,label\na,b,c,d\n", "text1 and text2 or text and text2 of"),
    ("one class", "csv", b"text,label\n" + b"one,a\n" * 10, "label is always a"),
    ("a class for every row", "csv", csv_of("0.25", "0.5"), "2 classes in 2 rows, .* columns.regression"),
    ("a broken line", "json", lines('"a"', '"b'), r"line 2 \(Unterminated string starting at at character"),
    ("a line that is no object", "json", b'{"text": "one", "label": 1}\n["two", 2]\n', r"line 2 \(no object\)"),
    ("a key twice", "json", b'{"text": "one", "label": 1, "label": 2}', r"line 1 \(label is there twice\)"),
    ("no number of JSON", "json", lines("NaN", "1"), r"line 1 \(NaN is no JSON\)"),
    ("a number with a zero before it", "json", lines("007", "1"), r"line 1 \(Expecting ',' delimiter"),
    ("null", "json", lines("null", "1"), r"line 1 \(no label\)"),
    ("a key that a row lacks", "json", b'{"text": "one", "label": 1}\n{"text": "two"}', r"line 2 \(no label\)"),
    ("a list of labels", "json", lines('["a"]', "1"), r"line 1 \(label .* is no text and no whole number\)"),
    ("a number for a text", "json", b'{"text": 1, "label": 1}\n{"text": "two", "label": 2}', r"line 1 \('1' is no text\)"),
    ("half of a surrogate pair", "json", lines(r'"\ud83d"', "1"), r"line 1 \(half of a surrogate pair\)"),
    ("Latin-1 in JSON", "json", lines('"é"', "1").decode().encode("latin-1"), r"line 1 \(the byte 0xe9 is not UTF-8\)"),
    ("UTF-16 in JSON", "json", lines('"a"', "1").decode().encode("utf-16"), "UTF-16: save it as UTF-8"),
    ("too many brackets", "json", b'{"text": "one", "label": ' + b"[" * 100_000 + b"\n", r"line 1 \(nested too deeply\)"),
    ("a broken list", "json", b'[{"text": "one", "label": 1},\n{"text"]', r"Expecting ':' delimiter: line 2 column 8"),
    ("a list of others", "json", b'[{"text": "one", "label": 1}, 5]', r"row 1 \(no object\)"),
    ("fractions of parquet", "parquet", parquet_of([1.0, 2.5]), r"row 0 \(label 1.0 is a fraction\); row 1"),
    ("null of parquet", "parquet", parquet_of(["a", None]), r"row 1 \(no label\)"),
    ("no text of parquet", "parquet", parquet_of(["a", "b"], [None, "two"]), r"row 0 \(no text\)"),
    ("numbers for texts", "parquet", parquet_of(["a", "b"], [1, 2]), r"row 0 \('1' is no text\)"),
    ("dates of parquet", "parquet", parquet_of([datetime.date(2024, 1, 2)] * 2), "row 0 .label '2024-01-02' is no"),
    ("bytes for texts", "parquet", parquet_of(["a", "b"], [b"one", b"two"]), r"row 0 .* is no text\)"),
    ("Latin-1 in parquet", "parquet", parquet_of(["a", "b"], not_utf8()), r"row 1 \(the byte 0xe9 is not UTF-8\)"),
    ("a class that is not there", "parquet", parquet_of([0, 5], **NAMED), r"row 1 \(label 5 is of no class\)"),
    ("half a parquet file", "parquet", parquet_of(["a", "b"])[:100], "a readable parquet file"),
]  # fmt: skip


def given(folder, scheme: str, content: bytes) -> str:
    (folder / "a table").write_bytes(content)
    return f"{scheme}:{folder / 'a table'}"


@pytest.mark.parametrize(("scheme", "content", "says"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_table_that_would_be_read_otherwise_is_refused_with_its_row(tmp_path, scheme, content, says):
    with pytest.raises(InputError, match=says) as refused:
        load(given(tmp_path, scheme, content))
    assert str(refused.value).isprintable()
    assert str(refused.value).startswith(("data is ", "label is ", "the "))


def twenty(*labels: str) -> bytes:
    return ("text,label\n" + "".join(f"number {i},{labels[i % len(labels)]}\n" for i in range(20))).encode()


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (Columns(text="words"), "column is words, but must be one of those that are there: text, label"),
        (Columns(label="size"), "column is size, but must be one of those that are there: text, label"),
        (Columns(regression=True), r"20 broken rows: line 2 .label 'a' is no finite number"),
    ],
)
def test_a_column_that_is_not_there_is_refused_with_those_that_are(tmp_path, columns, says):
    with pytest.raises(InputError, match=says):
        load(given(tmp_path, "csv", twenty("a", "b")), columns=columns)


@pytest.mark.parametrize("scheme", ["csv", "json", "parquet"])
@pytest.mark.parametrize(
    "error",
    [
        PermissionError(13, "Permission denied"),
        FileNotFoundError(2, "No such file or directory"),
        OSError(5, "Input/output error"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_the_cause(tmp_path, monkeypatch, scheme, error):
    def fail(*_args, **_options):
        raise error

    address = given(tmp_path, scheme, b"")
    monkeypatch.setattr("pathlib.Path.open", fail)
    for loader in (load, data.load) if scheme == "parquet" else (load,):
        with pytest.raises(
            InputError, match=rf"data is .*a table \({error.strerror}\), but must be a readable {scheme} file"
        ):
            loader(address)


COUNT = 20
NUMBERED = [f"text number {i}" for i in range(COUNT)]
OTHERS = [f"another {i}" for i in range(COUNT)]


def write_parquet(folder, names: tuple[str, ...] = (), **columns):
    """Write a parquet file and return its address; `names` are the label's classes, as `datasets` stores them."""
    table = pa.table(columns)
    if names:
        features = {key: {"dtype": "string", "_type": "Value"} for key in columns}
        features["label"] = {"names": list(names), "_type": "ClassLabel"}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, folder / "mine.parquet")
    return f"parquet:{folder / 'mine.parquet'}"


def test_csv_and_json_lines_and_several_files_read_alike(tmp_path):
    rows = [(text, "ab"[i % 2]) for i, text in enumerate(NUMBERED)]
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
    assert loaded[0].first == tuple(NUMBERED)


def test_a_fingerprint_follows_texts_labels_classes_and_split_alone(tmp_path):
    def mark(seed: int = 0, name: str | None = None, texts=NUMBERED, labels=(0, 1) * 10, names=("no", "yes")) -> str:
        return load(write_parquet(tmp_path, names, text=texts, label=list(labels)), name, seed).fingerprint

    changed = [mark(seed=1), mark(texts=OTHERS), mark(labels=(1, 0) * 10), mark(names=("yes", "no"))]
    assert mark(name="renamed") == mark()
    assert len({mark(), *changed}) == 5


def test_texts_without_labels_are_read_from_every_kind_of_table_once_each(tmp_path):
    """Whatever stands where labels would is not read, so that a test split without its labels can be used."""
    (tmp_path / "a.csv").write_text("text,label\none,\ntwo,x\nOne,y\n")
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "two", "label": [1]}\n')
    addresses = f"csv:{tmp_path}/a.csv", f"json:{tmp_path}/a.jsonl", write_parquet(tmp_path, text=TEXTS, label=[-1, -1])
    assert [load_texts(address) for address in addresses] == [[("one", None), ("two", None)]] * 3


def test_pairs_without_labels_are_read_with_both_texts(tmp_path):
    address = write_parquet(tmp_path, sentence1=["one", "one", "one"], sentence2=["two", "three", "two"])
    assert load_texts(address, pair=True) == [("one", "two"), ("one", "three")]


@pytest.mark.parametrize(
    ("content", "pair", "says"),
    [
        (b"text\none\n \n", False, r"texts is .* with 1 broken rows: line 3 \(an empty text\), .*whole rows"),
        (b"text\none\n", True, "texts is .* of single texts, but must be pairs"),
        (b"text1,text2\none,two\n", False, "texts is .* of pairs, but must be single texts"),
        (b"words\none\n", False, "the text column is words"),
        (b"text\n", False, "without rows"),
    ],
)
def test_texts_that_a_task_could_not_read_are_refused(tmp_path, content, pair, says):
    with pytest.raises(InputError, match=says):
        load_texts(given(tmp_path, "csv", content), pair=pair)


def test_texts_without_labels_come_from_files_alone():
    with pytest.raises(InputError, match="texts is hub:some/set, but must be parquet:PATH, csv:PATH or json:PATH"):
        load_texts("hub:some/set")
