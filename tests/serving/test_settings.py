"""Settings come from PLIANT_ variables, and nothing misspelt passes in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from pliant.errors import InputError
from serving.settings import Settings, from_environment, to_environment


def test_an_environment_without_our_variables_gives_the_defaults():
    assert from_environment({"PATH": "/bin", "HOME": "/"}) == Settings()


def test_settings_survive_the_way_through_an_environment():
    settings = Settings(
        policy="tome",
        gamma=-5,
        margin=0.05,
        refresh_seconds=0,
        threads=2,
        any_profile=True,
        max_deadline=2.5,
        journal=Path("j.jsonl"),
    )
    assert from_environment(to_environment(settings)) == settings
    assert from_environment(to_environment(Settings())) == Settings()


def test_an_unknown_variable_is_refused_with_the_nearest_known_one():
    with pytest.raises(InputError, match="PLIANT_MAX_WAITNG, but must be a known one, such as PLIANT_MAX_WAITING"):
        from_environment({"PLIANT_MAX_WAITNG": "5"})


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("PLIANT_THREADS", "two", "PLIANT_THREADS is 'two', but must be a whole number"),
        ("PLIANT_THREADS", "0", "PLIANT_THREADS is 0, but must be positive"),
        ("PLIANT_ANY_PROFILE", "maybe", "PLIANT_ANY_PROFILE is 'maybe', but must be true or false"),
        ("PLIANT_MAX_DEADLINE", "nan", "PLIANT_MAX_DEADLINE is nan, but must be positive and finite"),
        ("PLIANT_MARGIN", "1", "PLIANT_MARGIN is 1.0, but must be at least 0 and below 1"),
        ("PLIANT_REFRESH_SECONDS", "-1", "PLIANT_REFRESH_SECONDS is -1.0, but must be 0 for never"),
        ("PLIANT_SYSTEM", "packng", "PLIANT_SYSTEM is 'packng', but must be one of tokens, bins, cascade, packing"),
        ("PLIANT_PLACEMENT", "any", "PLIANT_PLACEMENT is 'any', but must be one of shared, own"),
        ("PLIANT_PROCESSES", "0", "PLIANT_PROCESSES is 0, but must be positive"),
        ("PLIANT_WORKERS", "0", "PLIANT_WORKERS is 0, but must be positive"),
        ("PLIANT_POLICY", "fixd", "PLIANT_POLICY is 'fixd', but must be one of default, otas"),
    ],
)
def test_a_value_outside_its_limit_is_refused_with_its_variable(name, text, sentence):
    with pytest.raises(InputError, match=sentence):
        from_environment({name: text})


def test_each_system_has_its_own_policies():
    assert Settings(system="packing", policy="s3").policy == "s3"
    assert Settings(system="bins", policy="first-come").policy == "first-come"
    with pytest.raises(InputError, match="PLIANT_POLICY is 'otas', but must be one of default, first-come"):
        Settings(system="bins", policy="otas")
    with pytest.raises(InputError, match="PLIANT_POLICY is 's3', but must be one of default, otas"):
        Settings(policy="s3")
