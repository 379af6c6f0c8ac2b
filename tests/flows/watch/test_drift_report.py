"""The drift report: a table of what a service wrote down, read leniently, safe to show."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.flows.watch.triggered import read_alarms, state_file, to_markdown

ALARM = {
    "stream": "digit",
    "sentence": "The share of class 3 rose",
    "reference": 0.1,
    "present": 0.31,
    "evidence": 2041.5,
    "at": "2026-01-01",
    "observations": 812,
}


def test_the_report_is_a_table_of_the_alarms():
    lines = to_markdown("tokens", "the class mix changed", [ALARM]).splitlines()
    assert lines[:3] == ["# tokens: why this run was started", "", "the class mix changed"]
    assert lines[4] == "| stream | reference | present | evidence | since | observations | what was noticed |"
    assert lines[6] == "| digit | 0.1 | 0.31 | 2042 | 2026-01-01 | 812 | The share of class 3 rose |"


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b'{"alarms": 3}', b'{"alarms": [1, null]}', b"\xff"])
def test_without_a_usable_state_only_the_reason_is_shown(tmp_path, content):
    path = state_file(tmp_path, "tokens")
    if content is not None:
        path.parent.mkdir()
        path.write_bytes(content)
    assert read_alarms(path) == []
    assert to_markdown("tokens", "why", read_alarms(path)) == "# tokens: why this run was started\n\nwhy"


@given(st.text(max_size=500))
def test_whatever_a_stream_is_called_it_is_one_cell_without_markup(text):
    *_, row = to_markdown("tokens", "why", [{"stream": text, "evidence": 1}]).split("\n")
    assert row.replace("\\|", "").count("|") == 3
    assert "<" not in row
    assert len(row) < 1000
