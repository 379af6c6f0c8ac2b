"""What the runner says of clients that pass, fail, hang or cannot be installed."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from qa.conformance import environments, run
from qa.conformance.run import CLIENTS, FAILED, VLLM, Client, Row, choose
from qa.conformance.services import LiveService

LINE = '{"client": "a-client", "version": "7", "did": "chats", "ok": %s, "detail": ""}'


@pytest.fixture
def runner(tmp_path):
    return run.Runner(tmp_path / "conformance", tmp_path / "no-such-file", "quick")


def use(runner, folder: Path, text: str) -> Row:
    """Return what comes of a client whose script is `text`."""
    path = folder / "script.py"
    path.write_text(text)
    client = Client("a-client", str(path), "packing")
    return runner.use(client, Path(sys.executable), LiveService("packing", "http://127.0.0.1:9", "tales", None))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "ended with status 0"),
        ("print('{}')", "ended with status 0"),
        ("import no_such_module", "ended with status 1"),
        (f"print('{LINE % 'true'}')\nraise SystemExit(3)", "ended with status 3"),
        ("import time\ntime.sleep(600)", "made no end"),
    ],
)
def test_a_script_that_takes_no_step_ends_badly_or_never_fails(runner, tmp_path, monkeypatch, text, reason):
    monkeypatch.setattr(run, "LIMIT", 3.0)
    result = use(runner, tmp_path, text)
    assert result.result == FAILED and reason in result.reason


def test_a_client_has_nothing_of_pliant_around_it_and_no_network(tmp_path, monkeypatch):
    monkeypatch.setenv("PLIANT_KEYS_FILE", "keys.json")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    seen = run.variables(Client("aiperf", "x.py", "packing", hub_offline=False), Path("/env/bin/python"), tmp_path)
    assert not any(name.startswith(("PLIANT", "PYTHON")) for name in seen)
    assert seen["HOME"] == str(tmp_path) and seen["PATH"].split(os.pathsep)[0] == "/env/bin"
    assert seen["HTTPS_PROXY"] == seen["HF_ENDPOINT"] and "HF_HUB_OFFLINE" not in seen


def test_every_requirement_is_an_exact_version_the_same_in_all_scripts_and_clients_are_chosen_by_name_or_system():
    pins = defaultdict(set)
    for client in CLIENTS:
        if client.name != VLLM:
            pins[client.name].add(client.pins)
            name, _, number = client.pins[0].removeprefix(environments.NO_DEPENDENCIES).partition("==")
            assert name.partition("[")[0] == client.name.partition("[")[0] and number
    assert all(len(each) == 1 for each in pins.values()), pins
    assert {client.system for client in choose(["openai"])} == {"packing", "bins"}
    assert {client.system for client in choose(["cascade"])} == {"cascade"}
    with pytest.raises(ValueError, match="opnai"):
        choose(["opnai"])
