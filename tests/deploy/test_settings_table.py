"""The table of settings names every variable, what it is when it is not set, and which systems have it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

import pytest

from deploy import settings_table
from deploy.settings_table import Row, comments_of, rows, table
from pliant import systems
from pliant.errors import InputError
from pliant.serving.settings import OTHERS, Settings, settings_of
from pliant.serving.tokens.settings import TokensSettings


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


def test_defaults_are_written_as_the_variable_would_be():
    listed = {row.variable: row.default for row in rows(["tokens"])}
    assert listed["PLIANT_TRY_CHALLENGERS"] == "true"
    assert listed["PLIANT_HOME"] == ".pliant"
    assert listed["PLIANT_KEYS_FILE"] == listed["PLIANT_GAMMA"] == ""
    assert listed["PLIANT_REFRESH_SECONDS"] == "30.0"


def test_the_comment_of_a_subclass_counts_if_it_has_one():
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Louder(TokensSettings):
        SYSTEM: ClassVar[str] = "tokens"
        margin: float = 0.5  # another meaning
        gamma: int | None = 3

    comments = comments_of(Louder)
    assert comments["margin"] == "another meaning"
    assert comments["gamma"] == comments_of(TokensSettings)["gamma"] != ""


def test_a_setting_that_nobody_explained_is_refused(monkeypatch):
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Unexplained(Settings):
        loudness: int = 3

    monkeypatch.setattr(settings_table, "settings_of", lambda _name: Unexplained)
    with pytest.raises(InputError, match=r"loudness.*explained by a comment"):
        rows(["tokens"])


def test_a_cell_cannot_break_the_table():
    lines = table([Row("PLIANT_A", "", ("tokens",), "a|b")]).splitlines()
    assert lines[-1] == r"| `PLIANT_A` |  | a\|b |"


def test_every_variable_that_is_no_setting_is_explained_and_none_besides():
    assert set(settings_table.OTHER_MEANINGS) == set(OTHERS)


def test_a_variable_that_nobody_explained_is_refused(monkeypatch):
    monkeypatch.setattr(settings_table, "OTHERS", (*OTHERS, "PLIANT_NEW"))
    with pytest.raises(InputError, match="PLIANT_NEW"):
        settings_table.others_table()
