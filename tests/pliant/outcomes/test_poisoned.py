"""An empty, torn or poisoned file of labels costs its bad lines alone, and no coalition of strangers outweighs its share."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.outcomes.files import forget, input_ids, read_inputs, read_labels
from pliant.outcomes.labels import LabelRecord, record_of, teachable

RECORD = LabelRecord("x", "t", 1, "0", "0", "a", 0.5, {"tiny": ("b", 0.25)}, "b", False, "acme", "k", 2.0, 1.0)
LINE = RECORD.to_line()
HUGE = "1" + "0" * 400
POISON = {
    "nothing but brackets": "[" * 100_000,
    "objects without end": '{"a":' * 100_000,
    "a time beyond any float": LINE.replace('"at": 2.0', f'"at": {HUGE}'),
    "a number of too many digits": LINE.replace('"at": 2.0', '"at": ' + "1" * 5000),
    "an infinite time": LINE.replace('"at": 2.0', '"at": 1e999'),
    "no number as time": LINE.replace('"at": 2.0', '"at": NaN'),
    "a confidence that is no number": LINE.replace('"confidence": 0.5', '"confidence": NaN'),
    "a confidence beyond 1": LINE.replace('"confidence": 0.5', '"confidence": 1.5'),
    "a confidence below 0": LINE.replace('"confidence": 0.5', '"confidence": -0.5'),
    "a confidence as a text": LINE.replace('"confidence": 0.5', '"confidence": "0.5"'),
    "a former confidence that is no number": LINE.replace("0.25", "NaN"),
    "a label that is no number": LINE.replace('"label": "b"', '"label": NaN'),
    "a label beyond any float": LINE.replace('"label": "b"', f'"label": {HUGE}'),
    "a version that is a list": LINE.replace('"version": 1', '"version": [1]'),
    "one field more": LINE.replace('"version"', '"more": 1, "version"'),
    "other JSON": '{"inputs": "a dog"}',
    "binary": "\x00\x01\ufffd",
    "a long word": "a" * 1_000_000,
}

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize("line", POISON.values(), ids=POISON.keys())
def test_a_poisoned_line_is_refused_with_a_sentence_of_bounded_length(line):
    with pytest.raises(InputError, match="must be a label as a service writes it") as caught:
        record_of(line)
    assert len(str(caught.value)) < 500


@given(st.sampled_from(sorted(json.loads(LINE))), values)
def test_whatever_a_field_holds_the_line_is_a_usable_label_or_refused(name, value):
    try:
        record = record_of(json.dumps({**json.loads(LINE), name: value}))
    except InputError:
        return
    assert 0 <= record.confidence <= 1 + 1e-6 and record.at - record.answered_at < float("inf")
    assert len({(record.task, record.version, record.label, record.predicted)}) == 1, "it can be a key"


def test_bad_lines_cost_themselves_alone_and_the_log_says_how_many(tmp_path, caplog):
    good = [replace(RECORD, id=str(number)) for number in range(3)]
    lines = [good[0].to_line(), *POISON.values(), good[1].to_line(), "", good[2].to_line()]
    torn = replace(RECORD, id="torn").to_line()[:-5]
    (tmp_path / "labels.jsonl").write_bytes("\n".join([*lines, torn]).encode() + b"")
    (tmp_path / "labels.jsonl.1").write_bytes(b"\xff\xfe\x00binary\n" * 3)
    assert read_labels(tmp_path) == good
    assert f"passed over in {tmp_path / 'labels.jsonl'}, as they are no labels: {len(POISON) + 1} (" in caplog.text
    assert max(map(len, caplog.messages)) < 1000


def test_a_file_that_cannot_be_read_is_a_sentence(tmp_path):
    (tmp_path / "inputs.db").write_bytes(b"no database, but long enough to be looked at " * 30)
    for read in (lambda: list(read_inputs(tmp_path)), lambda: input_ids(tmp_path), lambda: forget(tmp_path)):
        with pytest.raises(InputError, match=r"inputs is .* but must be a file that can be"):
            read()


def test_labels_of_the_future_and_of_answers_that_were_labelled_before_gain_nothing(tmp_path):
    trusted = [replace(RECORD, id=f"r{number}", tenant="root") for number in range(9)]
    future = [replace(RECORD, id=f"f{number}", at=1e12, tenant="stranger") for number in range(50)]
    again = [replace(record, label="a", tenant="stranger", at=1e12) for record in trusted]
    (tmp_path / "labels.jsonl").write_text("".join(f"{r.to_line()}\n" for r in [*trusted, *future, *again]))
    taught = teachable(read_labels(tmp_path), {"root"})
    assert [record for record in taught if record.tenant == "root"] == trusted
    assert Counter(record.tenant for record in taught)["stranger"] == 3, "a quarter of all"


tenants = st.sampled_from(["a", "b", "c", "d", "e", "f"])
files = st.lists(
    st.builds(
        lambda id, task, tenant, label, at: replace(RECORD, id=str(id), task=task, tenant=tenant, label=label, at=at),
        st.integers(0, 80),
        st.sampled_from("tu"),
        tenants,
        st.sampled_from("ab"),
        st.floats(0, 1e12),
    ),
    max_size=100,
)


@given(
    files, st.sets(tenants, max_size=6), st.sets(st.sampled_from(["a", "b"])), st.sampled_from([0.1, 0.25, 1 / 3, 0.5])
)
def test_no_coalition_of_strangers_has_more_than_its_shares_and_too_few_alone_teach_nothing(
    labels, coalition, trusted, share
):
    strangers = coalition - trusted
    taught = teachable(labels, trusted, share)
    totals = Counter(record.task for record in taught)
    for task, total in totals.items():
        theirs = sum(record.tenant in strangers for record in taught if record.task == task)
        assert theirs <= len(strangers) * share * total + 1e-9
    if len(strangers) < 1 / share:
        assert teachable([record for record in labels if record.tenant in strangers], trusted, share) == ()
