"""Lengths of requests from texts, journals and files all give the same histogram."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from pliant.errors import InputError
from pliant.journal import encode
from pliant.protocol import Arrived, Finished, JournalEntry, Request
from pliant.training.bins.lengths import histogram, of_journal, of_parquet, of_texts
from tests.fixtures.bins.encoders import tiny_encoder
from tests.fixtures.cascade.classifiers import TEXTS


def entry(number: int, length: int, task: str = "mine") -> JournalEntry:
    return JournalEntry(0.1 * number, Arrived(Request(number, 0.1 * number, 1.0, task, 1.0, length)), ())


def test_a_histogram_counts_what_is_too_long_as_the_longest():
    assert histogram([1, 2, 2, 9, 30], 4).tolist() == [0, 1, 2, 0, 2]
    assert histogram([], 3).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("wrong", [[0, 1], [-1], ["a"], [float("nan")]])
def test_what_is_no_length_is_refused(wrong):
    with pytest.raises(InputError, match="numbers of tokens, at least 1 each"):
        histogram(wrong, 8)


def test_texts_are_counted_as_the_encoder_reads_them_pairs_with_both_parts():
    encoder, reports = tiny_encoder(max_length=20), []
    single = of_texts([(text, None) for text in TEXTS], encoder, lambda *report: reports.append(report))
    pairs = of_texts(list(pairwise(TEXTS)), encoder)
    assert (single.sum(), pairs.sum()) == (len(TEXTS), len(TEXTS) - 1)
    assert np.average(np.arange(21), weights=pairs) > np.average(np.arange(21), weights=single)
    assert single[:3].sum() == 0  # [CLS], [SEP] and at least a word
    assert reports[-1] == (len(TEXTS), len(TEXTS))


def test_a_journal_tells_of_the_requests_of_its_task_and_its_broken_end_is_passed_over(tmp_path):
    path = tmp_path / "journal.jsonl"
    entries = [entry(0, 5), entry(1, 7), entry(2, 9, "other"), JournalEntry(1.0, Finished(0, 0.1), ()), entry(3, 50)]
    lines = [encode(recorded) for recorded in entries]
    path.write_text("\n".join(lines) + "\n" + lines[0][:40])
    assert of_journal(path, "mine", 8).tolist() == [0, 0, 0, 0, 0, 1, 0, 1, 1]


def test_lines_that_are_none_of_a_journal_are_passed_over_and_counted(tmp_path, caplog):
    path = tmp_path / "journal.jsonl"
    torn = [b'{"type": "arrived"}', bytes(100) + b'"type": "arrived"', b'\xff\xfe "type": "arrived"']
    path.write_bytes(b"\n".join([encode(entry(0, 5)).encode(), *torn, encode(entry(1, 7)).encode(), b""]))
    assert of_journal(path, "mine", 8).tolist() == [0, 0, 0, 0, 0, 1, 0, 1, 0]
    (message,) = caplog.messages
    assert message.startswith(f"passed over in {path}, as they are no journal entries: 3 (line 2: journal line is")


def test_a_file_of_lengths_is_read_by_its_usual_or_its_named_column(tmp_path):
    import datasets

    path = tmp_path / "lengths.parquet"
    datasets.Dataset.from_dict({"tokens": [1, 4, 4], "words": [2.0, 3.5, 9.0]}).to_parquet(path)
    assert of_parquet(path, None, 4).tolist() == [0, 1, 0, 0, 2]
    assert of_parquet(path, "words", 4).tolist() == [0, 0, 1, 0, 2]
    with pytest.raises(InputError, match="the column of lengths is tokens, words, but must be one of characters"):
        of_parquet(path, "characters", 4)
    with pytest.raises(InputError, match=r"No such file .* a readable parquet file"):
        of_parquet(tmp_path / "absent.parquet", None, 4)
