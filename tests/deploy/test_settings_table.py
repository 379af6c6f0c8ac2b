"""The table of settings names every variable, what it is when it is not set, and which systems have it."""

from __future__ import annotations

import pytest

from deploy.settings_table import Row, flows_table, rows, table
from pliant import systems
from pliant.serving.settings import settings_of
from pliant.settings import FlowSettings, variable


@pytest.mark.parametrize("system", systems.names())
def test_every_setting_of_a_system_is_in_its_table_once_with_its_default_as_a_variable_has_it(system):
    listed = {row.variable: row.default for row in rows([system])}
    assert sorted(listed) == sorted(map(variable, settings_of(system).model_fields))
    expected = {"TRY_CHALLENGERS": "true", "HOME": ".pliant", "KEYS_FILE": "", "THREADS": "", "REFRESH_SECONDS": "30.0"}
    assert {name: listed[f"PLIANT_{name}"] for name in expected} == expected


def test_settings_that_differ_by_the_systems_names_alone_share_a_row_and_others_have_one_each():
    (row,) = [row for row in rows() if row.variable == "PLIANT_EXPERIMENT"]
    assert (row.systems, row.default) == (systems.names(), "pliant-SYSTEM")
    policies = {row.systems: row.meaning for row in rows() if row.variable == "PLIANT_POLICY"}
    assert sorted(policies) == [("bins",), ("packing",), ("tokens",)] and "`otas`" in policies["tokens",]


def test_what_flows_read_is_listed_and_a_cell_cannot_break_a_table():
    assert all(variable(name) in flows_table() for name in FlowSettings.model_fields)
    assert table([Row("PLIANT_A", "", ("tokens",), "a|b")]).splitlines()[-1] == r"| `PLIANT_A` |  | a\|b |"
