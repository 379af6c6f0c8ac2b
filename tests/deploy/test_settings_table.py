"""The table of settings names every variable, what it is when it is not set, and which systems have it."""

from __future__ import annotations

from dataclasses import fields

import pytest

from deploy import settings_table
from deploy.settings_table import Row, rows
from pliant import systems
from pliant.serving.settings import OTHERS, settings_of


def by_name(table_rows: list[Row]) -> dict[str, list[Row]]:
    return {row.variable: [each for each in table_rows if each.variable == row.variable] for row in table_rows}


@pytest.mark.parametrize("system", systems.names())
def test_every_setting_of_a_system_is_in_its_table_once(system):
    variables = sorted(row.variable for row in rows([system]))
    assert variables == sorted(f"PLIANT_{field.name.upper()}" for field in fields(settings_of(system)))


def test_a_setting_of_all_systems_is_in_the_common_table_once():
    for name in ("PLIANT_REGISTRY_URI", "PLIANT_HOME", "PLIANT_EXPERIMENT", "PLIANT_MAX_DEADLINE"):
        (row,) = by_name(rows())[name]
        assert row.systems == systems.names()


def test_defaults_that_differ_by_the_systems_names_alone_are_one_row():
    (row,) = by_name(rows())["PLIANT_EXPERIMENT"]
    assert row.default == "pliant-SYSTEM"


def test_a_setting_with_other_values_in_other_systems_has_a_row_for_each():
    policies = by_name(rows())["PLIANT_POLICY"]
    assert sorted(name for row in policies for name in row.systems) == ["bins", "packing", "tokens"]
    (tokens,) = [row for row in policies if row.systems == ("tokens",)]
    assert "`otas`" in tokens.meaning and ".py" not in tokens.meaning


def test_every_variable_that_is_no_setting_is_explained_and_none_besides():
    assert set(settings_table.OTHER_MEANINGS) == set(OTHERS)
