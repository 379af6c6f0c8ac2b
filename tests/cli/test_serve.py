"""The options of `pliant serve SYSTEM` are the settings of its service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pliant.serving.launch
from pliant import systems
from pliant.cli.main import main
from pliant.serving.settings import settings_of

WORDS: dict[str, Any] = {
    "--refresh 0.5": {"refresh_seconds": 0.5},
    "--standby=0": {"standby_seconds": 0.0},
    "--open --any-profile --no-try-challengers": {"open": True, "any_profile": True, "try_challengers": False},
    "--allowed-host a --allowed-host b": {"allowed_hosts": "a,b"},
    "--trusted-proxy 10.0.0.7 --cors-origin https://a": {"trusted_proxies": "10.0.0.7", "cors_origins": "https://a"},
    "--keys k.json --tls-cert c.pem --tls-key k.pem": {
        "keys_file": Path("k.json"),
        "tls_cert": Path("c.pem"),
        "tls_key": Path("k.pem"),
    },
    "--journal j.jsonl --device cuda --threads 3": {"journal": Path("j.jsonl"), "device": "cuda", "threads": 3},
    "--max-waiting 7 --log-format json": {"max_waiting": 7, "log_format": "json"},
}
OWN: dict[str, tuple[str, dict[str, Any]]] = {
    "tokens": ("--policy pets --gamma -4 --margin 0.2", {"policy": "pets", "gamma": -4, "margin": 0.2}),
    "bins": (
        "--workers 3 --least-workers 2 --dispatch published --pool ray --ray-address auto",
        {"workers": 3, "least_workers": 2, "dispatch": "published", "pool": "ray", "ray_address": "auto"},
    ),
    "cascade": ("--placement own --workers 2 --spare 1", {"placement": "own", "workers": 2, "spare": 1}),
    "packing": (
        "--engine vllm --processes 2 --policy s3 --observe",
        {"engine": "vllm", "processes": 2, "policy": "s3", "observe": True},
    ),
}


@pytest.fixture
def started(here, monkeypatch) -> list[Any]:
    """The settings of the services that were started: none is."""
    settings: list[Any] = []
    monkeypatch.setattr(pliant.serving.launch, "serve", lambda given, *_rest: settings.append(given) or 0)
    return settings


@pytest.mark.parametrize("system", systems.names())
def test_options_and_variables_reach_the_service_and_options_win(system, started, monkeypatch):
    assert main(["serve", system]) == 0
    assert started[0].replace(home=Path(".pliant")) == settings_of(system)(
        threads=1, registry_uri=started[0].registry_uri, artifact_root=started[0].artifact_root
    )
    monkeypatch.setenv("PLIANT_MAX_WAITING", "5")
    monkeypatch.setenv("PLIANT_LAUNCH_LIMIT", "8")
    words, own = OWN[system]
    assert main(["serve", system, *" ".join([*WORDS, words]).split()]) == 0
    wanted = {name: value for given in (*WORDS.values(), own, {"launch_limit": 8.0}) for name, value in given.items()}
    assert {name: getattr(started[1], name) for name in wanted} == wanted


@pytest.mark.parametrize("system", systems.names())
def test_every_setting_is_an_option_with_a_help_but_for_places_and_secrets(system, capsys):
    kind = settings_of(system)
    with pytest.raises(SystemExit):
        main(["serve", system, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    hidden = {name for name in kind.model_fields if not kind.option(name).name}
    assert hidden == {"registry_uri", "artifact_root", "home", "keys", "webhook_secret"}
    assert all(kind.option(name).name in text for name in kind.model_fields)
    assert "Length of the queue; further requests are refused. (default: 2048)" in text
