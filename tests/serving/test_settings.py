"""Settings come from PLIANT_ variables; a misspelt variable or an option of another system is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from pliant import systems
from pliant.errors import InputError
from pliant.serving.bins.settings import BinsSettings
from pliant.serving.cascade.settings import CascadeSettings
from pliant.serving.packing.settings import PackingSettings
from pliant.serving.settings import check_options, from_environment, settings_of, to_environment
from pliant.serving.tokens.settings import TokensSettings


@pytest.mark.parametrize("system", systems.names())
def test_an_environment_without_our_variables_gives_the_defaults(system):
    kind = settings_of(system)
    assert from_environment({"PATH": "/bin", "HOME": "/"}, kind) == kind()
    assert kind().system == system


@pytest.mark.parametrize("system", systems.names())
def test_defaults_survive_the_way_through_an_environment(system):
    kind = settings_of(system)
    assert from_environment(to_environment(kind()), kind) == kind()


def test_settings_survive_the_way_through_an_environment():
    settings = TokensSettings(
        policy="otas",
        gamma=-5,
        margin=0.05,
        refresh_seconds=0,
        threads=2,
        any_profile=True,
        max_deadline=2.5,
        journal=Path("j.jsonl"),
    )
    assert from_environment(to_environment(settings), TokensSettings) == settings


def test_an_unknown_variable_is_refused_with_the_nearest_known_one():
    with pytest.raises(InputError, match="PLIANT_MAX_WAITNG, but must be a known one, such as PLIANT_MAX_WAITING"):
        from_environment({"PLIANT_MAX_WAITNG": "5"}, TokensSettings)


@pytest.mark.parametrize(
    ("kind", "name", "having"),
    [
        (BinsSettings, "PLIANT_GAMMA", "tokens"),
        (TokensSettings, "PLIANT_PROCESSES", "packing"),
        (TokensSettings, "PLIANT_WORKERS", "bins and cascade"),
        (PackingSettings, "PLIANT_MARGIN", "tokens and bins and cascade"),
        (CascadeSettings, "PLIANT_POLICY", "tokens and bins and packing"),
    ],
)
def test_a_variable_of_another_system_is_refused_with_that_system(kind, name, having):
    sentence = f"environment variable is {name}, but must be one of {kind.SYSTEM}'s; it is an option of {having}"
    with pytest.raises(InputError, match=sentence):
        from_environment({name: "1"}, kind)


def test_the_settings_of_another_system_are_refused():
    with pytest.raises(InputError, match="PLIANT_SYSTEM is 'bins', but must be tokens, as this service is"):
        from_environment({"PLIANT_SYSTEM": "bins"}, TokensSettings)
    with pytest.raises(InputError, match="SYSTEM is packng, but must be one of tokens, bins, cascade, packing"):
        settings_of("packng")


@pytest.mark.parametrize(
    ("kind", "name", "text", "sentence"),
    [
        (TokensSettings, "PLIANT_THREADS", "two", "PLIANT_THREADS is 'two', but must be a whole number"),
        (TokensSettings, "PLIANT_THREADS", "0", "PLIANT_THREADS is 0, but must be positive"),
        (TokensSettings, "PLIANT_ANY_PROFILE", "maybe", "PLIANT_ANY_PROFILE is 'maybe', but must be true or false"),
        (BinsSettings, "PLIANT_MAX_DEADLINE", "nan", "PLIANT_MAX_DEADLINE is nan, but must be positive and finite"),
        (TokensSettings, "PLIANT_MARGIN", "1", "PLIANT_MARGIN is 1.0, but must be at least 0 and below 1"),
        (BinsSettings, "PLIANT_MARGIN", "-1", "PLIANT_MARGIN is -1.0, but must be at least 0 and below 1"),
        (CascadeSettings, "PLIANT_MARGIN", "1", "PLIANT_MARGIN is 1.0, but must be at least 0 and below 1"),
        (TokensSettings, "PLIANT_REFRESH_SECONDS", "-1", "PLIANT_REFRESH_SECONDS is -1.0, but must be 0 for no polls"),
        (CascadeSettings, "PLIANT_PLACEMENT", "any", "PLIANT_PLACEMENT is 'any', but must be one of shared, own"),
        (BinsSettings, "PLIANT_POOL", "sea", "PLIANT_POOL is 'sea', but must be one of processes, ray"),
        (BinsSettings, "PLIANT_LEAST_WORKERS", "2", "PLIANT_LEAST_WORKERS is 2, but must be at most the workers, 1"),
        (PackingSettings, "PLIANT_PROCESSES", "0", "PLIANT_PROCESSES is 0, but must be positive"),
        (CascadeSettings, "PLIANT_WORKERS", "0", "PLIANT_WORKERS is 0, but must be positive"),
        (TokensSettings, "PLIANT_POLICY", "fixd", "PLIANT_POLICY is 'fixd', but must be one of default, otas"),
        (BinsSettings, "PLIANT_POLICY", "otas", "PLIANT_POLICY is 'otas', but must be one of default, first-come"),
        (TokensSettings, "PLIANT_POLICY", "s3", "PLIANT_POLICY is 's3', but must be one of default, otas"),
    ],
)
def test_a_value_outside_its_limit_is_refused_with_its_variable(kind, name, text, sentence):
    with pytest.raises(InputError, match=sentence):
        from_environment({name: text}, kind)


def test_each_system_has_its_own_policies():
    assert PackingSettings(policy="s3").policy == "s3"
    assert BinsSettings(policy="first-come").policy == "first-come"


@pytest.mark.parametrize("system", systems.names())
def test_settings_are_given_by_name_and_never_change(system):
    kind = settings_of(system)
    with pytest.raises(TypeError, match="positional"):
        kind("http://127.0.0.1:5000")
    with pytest.raises(AttributeError):
        kind().threads = 2


def test_an_option_of_another_system_is_refused_with_that_system_and_a_misspelt_one_with_the_nearest():
    check_options(TokensSettings, ["gamma", "host"])
    with pytest.raises(
        InputError, match=r"option is workers, but must be .*tokens's; it is an option of bins and cascade"
    ):
        check_options(TokensSettings, ["gamma", "workers"])
    with pytest.raises(InputError, match="option is gama, but must be a known one, such as gamma"):
        check_options(TokensSettings, ["gama"])


@pytest.mark.parametrize(
    ("name", "taken", "refused"),
    [
        ("PLIANT_REFRESH_SECONDS", ("0", "0.5", "1e9"), ("-0.5", "inf", "nan")),
        ("PLIANT_STANDBY_SECONDS", ("0", "0.5"), ("-0.5", "inf", "nan")),
        ("PLIANT_WAIT_FOR_RELEASE", ("0", "0.5"), ("-0.5", "inf", "nan")),
        ("PLIANT_WATCH_SECONDS", ("0", "0.5"), ("-0.5", "inf", "nan")),
        ("PLIANT_SPARE", ("0", "1"), ("-1",)),
        ("PLIANT_MAX_DEADLINE", ("0.5", "1e9"), ("0", "-0.5", "inf")),
        ("PLIANT_MARGIN", ("0", "0.99"), ("-0.01", "1", "1.5")),
        ("PLIANT_MAX_WAITING", ("1",), ("0", "-1")),
        ("PLIANT_THREADS", ("1",), ("0", "-1", "1.5")),
        ("PLIANT_MAX_TEXTS", ("1",), ("0",)),
        ("PLIANT_WORKERS", ("1",), ("0",)),
    ],
)
def test_a_setting_is_taken_up_to_its_limits(name, taken, refused):
    for text in taken:
        settings = from_environment({name: text}, BinsSettings)
        assert getattr(settings, name.removeprefix("PLIANT_").lower()) == float(text)
    for text in refused:
        with pytest.raises(InputError, match=f"{name} is .*, but must be "):
            from_environment({name: text}, BinsSettings)


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("True", True), ("1", True), ("false", False), ("FALSE", False), ("0", False)]
)
def test_yes_and_no_are_read_in_both_spellings(text, value):
    assert from_environment({"PLIANT_ANY_PROFILE": text}, TokensSettings).any_profile is value


def test_the_fewest_workers_may_be_as_many_as_all():
    assert BinsSettings(workers=2, least_workers=2).least_workers == 2
    with pytest.raises(InputError, match="PLIANT_LEAST_WORKERS is 3, but must be at most the workers, 2"):
        BinsSettings(workers=2, least_workers=3)


def test_who_sets_nothing_gets_one_device_on_this_machine_alone():
    environment = to_environment(BinsSettings())
    expected = {
        "PLIANT_SYSTEM": "bins",
        "PLIANT_ALIAS": "champion",
        "PLIANT_REFRESH_SECONDS": "30.0",
        "PLIANT_DEVICE": "auto",
        "PLIANT_ANY_PROFILE": "False",
        "PLIANT_MAX_BODY_BYTES": "10485760",
        "PLIANT_MAX_WAITING": "2048",
        "PLIANT_MAX_DEADLINE": "60.0",
        "PLIANT_LAUNCH_LIMIT": "60.0",
        "PLIANT_SPARE": "0",
        "PLIANT_HOST": "127.0.0.1",
        "PLIANT_OPEN": "False",
        "PLIANT_WORKERS": "1",
        "PLIANT_MARGIN": "0.15",
        "PLIANT_MAX_TEXTS": "256",
        "PLIANT_POOL": "processes",
    }
    assert {name: environment[name] for name in expected} == expected
    assert "PLIANT_THREADS" not in environment and "PLIANT_JOURNAL" not in environment
