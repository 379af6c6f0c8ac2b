"""Labels: whether one shows a correct answer, which may teach, and what a poisoned file costs."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.fairness import largest_equal_part, trusted_tenants
from pliant.outcomes.files import forget, input_ids, read_inputs, read_labels
from pliant.outcomes.labels import LabelRecord, record_of, teachable
from pliant.outcomes.tracker import Answered

RECORD = LabelRecord("x", "t", 1, "0", "0", "a", 0.5, {"tiny": ("b", 0.25)}, "b", False, "acme", "k", 2.0, 1.0)

records = st.lists(
    st.builds(
        lambda id, task, tenant, key: replace(RECORD, id=str(id), task=task, tenant=tenant, key=key if tenant else ""),
        st.integers(0, 60),
        st.sampled_from("tu"),
        st.sampled_from(["", "acme", "beta", "gamma", "delta", "root"]),
        st.sampled_from(["", "k"]),
    ),
    max_size=80,
)
trust = st.sets(st.sampled_from(["", "root", "acme"]))
shares = st.sampled_from([0.0, 0.1, 0.25, 1 / 3, 0.5, 1.0])


@given(records, trust, shares)
def test_the_trusted_lose_only_repeated_labels_and_nobody_else_has_more_than_the_share_of_a_task(
    labels, trusted, share
):
    taught = teachable(labels, trusted, share)
    totals = Counter(record.task for record in taught)
    for (task, tenant), count in Counter((record.task, record.tenant) for record in taught).items():
        assert tenant in trusted or count <= share * totals[task]
    usable = [record for record in labels if record.tenant in trusted or (record.tenant and record.key)]
    first = {(record.task, record.id): record for record in reversed(usable)}
    assert all(first.get((record.task, record.id)) is record for record in taught)
    assert sum(record.tenant in trusted for record in taught) == sum(r.tenant in trusted for r in first.values())


@given(st.integers(0, 50), st.lists(st.integers(0, 20), max_size=6), st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]))
def test_the_equal_part_is_the_largest_that_fits(free, counts, share):
    def fits(limit: int) -> bool:
        taken = [min(count, limit) for count in counts]
        return max(taken, default=0) <= share * (free + sum(taken))

    limit = largest_equal_part(free, counts, share)
    assert fits(limit) and not any(fits(more) for more in range(limit + 1, max(counts, default=0) + 1))


def test_of_a_tenant_with_too_many_labels_the_latest_teach():
    trusted = [replace(RECORD, id=f"r{number}", tenant="root") for number in range(9)]
    many = [replace(RECORD, id=f"a{number}") for number in range(10)]
    assert teachable([replace(trusted[0], weight=0.0), *trusted[:1]], {"root"}) == (trusted[0],), "asked for later"
    taught = teachable([*many, *trusted], {"root"})
    assert [record.id for record in taught if record.tenant == "acme"] == ["a7", "a8", "a9"]


def test_trusted_tenants_are_listed_by_commas_and_anonymous_is_the_one_without_a_name():
    assert trusted_tenants("") == frozenset()
    assert trusted_tenants(" acme, beta,,anonymous ") == {"acme", "beta", ""}


@given(st.floats(0, 1), st.one_of(st.text(), st.floats(allow_nan=False, allow_infinity=False)), st.text())
def test_a_record_is_read_as_it_was_written(confidence, label, id):
    record = replace(RECORD, confidence=confidence, label=label, predicted=label, id=id, former={"s": (label, 0.5)})
    line = record.to_line()
    assert "\n" not in line and record_of(line) == record


def classified(*classes: str) -> Answered:
    return Answered("mails", 1, "default", "small", classes[0], 0.9, 0.95, classes=classes)


def valued(value: float, tolerance: float) -> Answered:
    return Answered("stars", 1, "default", "small", value, 1.0, None, tolerance)


@pytest.mark.parametrize(("label", "correct"), [(2.5, True), (3.0, True), (2.0, True), (3.01, False), (1.99, False)])
def test_a_value_is_correct_within_the_tolerance_on_either_side(label, correct):
    assert valued(2.5, 0.5).correct(label) is correct


@pytest.mark.parametrize("label", ["2.5", True, float("nan"), float("inf")])
def test_only_a_finite_number_labels_a_regression(label):
    with pytest.raises(InputError, match=r"^label is .*, but must be a finite number, as the task is a regression$"):
        valued(2.5, 0.5).correct(label)


@pytest.mark.parametrize(("count", "ending"), [(10, "c8, c9"), (11, "c8, c9 and 1 more"), (13, "c8, c9 and 3 more")])
def test_of_many_classes_ten_are_named_and_the_others_counted(count, ending):
    with pytest.raises(InputError, match=f"one of c0, c1, .*{ending}$"):
        classified(*(f"c{number}" for number in range(count))).correct("eggs")


LINE = RECORD.to_line()
HUGE = "1" + "0" * 400
POISON = {
    "nothing but brackets": "[" * 100_000,
    "a time beyond any float": LINE.replace('"at": 2.0', f'"at": {HUGE}'),
    "no number as time": LINE.replace('"at": 2.0', '"at": NaN'),
    "a confidence beyond 1": LINE.replace('"confidence": 0.5', '"confidence": 1.5'),
    "a confidence as a text": LINE.replace('"confidence": 0.5', '"confidence": "0.5"'),
    "a former confidence below 0": LINE.replace("0.25", "-0.25"),
    "a label that is no number": LINE.replace('"label": "b"', '"label": NaN'),
    "a label that is none": LINE.replace('"label": "b"', '"label": true'),
    "whether it is correct as a number": LINE.replace('"correct": false', '"correct": 1'),
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
