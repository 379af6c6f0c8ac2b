"""Which labels may teach: what strangers report cannot outweigh the rest."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.outcomes.labels import LabelRecord, record_of, teachable
from pliant.tenants import largest_equal_part, trusted_tenants

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


@given(records, trust, shares, st.integers(0, 60))
def test_one_tenant_s_flood_adds_at_most_its_share(labels, trusted, share, flood):
    """However many labels a stranger reports, the others' labels that teach are at least as many as without him."""
    stranger = [replace(RECORD, id=f"s{number}", tenant="stranger") for number in range(flood)]
    before = teachable(labels, trusted, share)
    after = [record for record in teachable([*labels, *stranger], trusted, share) if record.tenant != "stranger"]
    assert len(after) >= len(before)


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


@pytest.mark.parametrize(
    ("field", "value"),
    [('"acme"', "null"), ("0.25]", "null]"), ('"correct": false', '"correct": 1'), ('"label": "b"', '"label": true')],
)
def test_a_line_with_a_field_of_another_type_is_refused(field, value):
    line = RECORD.to_line()
    assert field in line
    with pytest.raises(InputError):
        record_of(line.replace(field, value))
