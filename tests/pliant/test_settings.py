"""An attribute and its docstring are a variable, an option and a row; what does not fit is named with its variable."""

from __future__ import annotations

from typing import Annotated

import pytest

from pliant.errors import InputError
from pliant.settings import (
    Count,
    EnvironmentSettings,
    FlowSettings,
    NotNegative,
    OneOf,
    Option,
    Positive,
    Share,
    variable,
)


class Loud(EnvironmentSettings):
    volume: Positive = 1.0
    """Of the echo."""
    echoes: Count | None = None
    pause: Annotated[NotNegative, Option("--rest")] = 0.0
    share: Share = 0.5
    open: bool = False
    tone: Annotated[str, OneOf(("high", "low"))] = "low"


class Louder(Loud):
    volume: Positive = 2.0


@pytest.mark.parametrize(
    ("field", "taken", "refused", "wanted"),
    [
        ("volume", ("0.5", "1e9"), ("0", "-0.5"), "above 0"),
        ("volume", (), ("inf", "nan"), "finite"),
        ("volume", (), ("loud",), "a number"),
        ("echoes", ("1",), ("0", "-1"), "at least 1"),
        ("echoes", (), ("1.5", "two"), "a whole number"),
        ("pause", ("0", "0.5"), ("-0.5",), "at least 0"),
        ("share", ("0", "1"), ("1.01",), "at most 1"),
        ("share", (), ("-0.01",), "at least 0"),
        ("open", ("true", "True", "1"), ("maybe",), "true or false"),
        ("tone", (), ("any", ""), "one of high, low"),
    ],
)
def test_a_setting_is_taken_up_to_its_limits(field, taken, refused, wanted):
    for text in taken:
        settings = Loud(**Loud.given({variable(field): text}))
        assert getattr(settings, field) == (text.lower() in ("1", "true") if field == "open" else float(text))
    for text in refused:
        with pytest.raises(InputError) as error:
            Loud(**Loud.given({variable(field): text}))
        assert (error.value.field, error.value.value, error.value.limit) == (variable(field), repr(text), wanted)


def test_settings_are_checked_where_they_are_made_or_replaced_and_never_change():
    settings = Loud(volume=3)
    assert settings.replace(share=1) == Loud(volume=3.0, share=1.0) != settings
    for make in (lambda: settings.replace(share=2), lambda: Loud(share=2)):
        with pytest.raises(InputError, match="PLIANT_SHARE is 2, but must be at most 1"):
            make()
    with pytest.raises(InputError, match="option is volum, but must be a known one, such as volume"):
        Loud(volum=3)
    with pytest.raises(TypeError, match="positional"):
        Loud(3)  # type: ignore[misc]
    with pytest.raises(ValueError, match="frozen"):
        settings.volume = 2.0


def test_a_subclass_keeps_a_docstring_and_what_nobody_explained_is_refused():
    assert Louder.meaning("volume") == Loud.meaning("volume") == "Of the echo."
    with pytest.raises(InputError, match="echoes, but must be explained by a docstring"):
        Louder.meaning("echoes")


def test_options_are_named_after_their_settings_unless_they_say_otherwise():
    assert (Loud.option("volume").name, Loud.option("pause").name) == ("--volume", "--rest")
    assert FlowSettings.option("store_gib").name == "--store-gib"
    assert (Loud.choices("tone"), Loud.choices("volume")) == (("high", "low"), ())


def test_flows_read_their_variables_and_leave_those_of_services():
    assert FlowSettings.read({"PLIANT_SPARE": "1", "PATH": "/bin"}) == FlowSettings()
    given = {
        "PLIANT_KEEP_VERSIONS": "2",
        "PLIANT_KEEP_DAYS": "7.5",
        "PLIANT_STORE_GIB": "0",
        "PLIANT_ROLLOUT": "canary",
    }
    assert FlowSettings.read(given) == FlowSettings(keep_versions=2, keep_days=7.5, store_gib=0, rollout="canary")
    for name, text in (("KEEP_VERSIONS", "0"), ("KEEP_DAYS", "nan"), ("STORE_GIB", "-1"), ("ROLLOUT", "sandwich")):
        with pytest.raises(InputError, match=f"PLIANT_{name} is "):
            FlowSettings.read({f"PLIANT_{name}": text})
