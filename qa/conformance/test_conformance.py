"""What the runner says of clients that pass, fail, hang or cannot be installed."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from pliant.errors import PliantError
from qa.conformance import environments, run
from qa.conformance.catalog import CLIENTS, VLLM, Client, choose
from qa.conformance.environments import NotInstalledError, python_of
from qa.conformance.results import FAILED, NOT_RUN, PASSED, Row, Step, status, table
from qa.conformance.services import LiveService

OK, BAD, LEFT_OUT = Step("chats", True, ""), Step("echo", False, "AssertionError: no"), Step("pictures", None, "none")
LINE = '{"client": "a-client", "version": "7", "did": "chats", "ok": %s, "detail": ""}'


def row(*steps: Step, **fields) -> Row:
    return Row("a-client", "1.2", "packing", steps, **fields)


ABSENT = row(reason="no network", installed=False)


@pytest.fixture
def runner(tmp_path):
    return run.Runner(tmp_path / "conformance", tmp_path / "no-such-file", "quick")


def use(runner, folder: Path, text: str) -> Row:
    """Return what comes of a client whose script is `text`."""
    path = folder / "script.py"
    path.write_text(text)
    client = Client("a-client", str(path), "packing", settings=False)
    return runner.use(client, Path(sys.executable), LiveService("packing", "http://127.0.0.1:9", "tales", None))


@pytest.mark.parametrize(
    ("client", "result"),
    [
        (row(OK, LEFT_OUT), PASSED),
        (row(OK, BAD), FAILED),
        (row(OK, reason="it made no end"), FAILED),
        (row(), FAILED),
        (row(LEFT_OUT), FAILED),
        (ABSENT, NOT_RUN),
    ],
)
def test_a_client_passes_only_if_it_did_something_and_all_of_it_went_well(client, result):
    assert client.result == result
    assert status([row(OK), client]) == int(result == FAILED) and status([client]) == int(result != PASSED)


def test_the_table_says_below_it_what_failed_what_was_left_out_and_what_was_not_run():
    lines = table([row(OK, BAD, LEFT_OUT, seconds=2.6), ABSENT]).splitlines()
    assert lines[2].split("  ")[0] == "a-client" and lines[2].split()[-5:] == ["failed", "1", "of", "2", "3"]
    for note in ("failed: echo: AssertionError: no", "left out: pictures: none", "not run: no network"):
        assert f"a-client against packing: {note}" in lines


def test_what_a_script_prints_becomes_its_row(runner, tmp_path):
    lines = f"print('a warning')\nprint('{LINE % 'true'}')\nprint('{LINE % 'false'}')\nraise SystemExit(1)"
    result = use(runner, tmp_path, lines)
    assert (result.version, result.result, result.reason) == ("7", FAILED, "")
    assert [step.ok for step in result.steps] == [True, False]


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


def test_what_is_not_installed_is_not_run_and_a_service_that_does_not_start_fails_its_clients(runner, monkeypatch):
    def refuse(*_):
        raise NotInstalledError("no network")

    def fail(*_):
        raise PliantError("it has no memory")

    monkeypatch.delenv(run.VLLM_PYTHON, raising=False)
    (vllm,) = runner.run(choose([VLLM]))
    assert vllm.result == NOT_RUN and run.VLLM_PYTHON in vllm.reason
    monkeypatch.setattr(run, "python_of", refuse)
    (absent,) = runner.run(choose(["llm-comply"]))
    assert (absent.result, absent.reason) == (NOT_RUN, "no network")
    monkeypatch.setattr(run, "python_of", lambda *_: Path(sys.executable))
    monkeypatch.setattr(run, "live", fail)
    assert all(each.result == FAILED and "no memory" in each.reason for each in runner.run(choose(["openai"])))


def test_an_environment_is_made_anew_only_if_its_pins_change_or_it_was_never_finished(tmp_path, monkeypatch):
    calls, failing = list[str](), list[str]()

    def fake_uv(cache: Path, *words: str) -> None:
        calls.append(words[0])
        if words[0] == "venv":
            Path(words[-1]).mkdir()
        elif failing:
            raise NotInstalledError(failing.pop())

    monkeypatch.setattr(environments, "_uv", fake_uv)
    folder, pins = tmp_path / "a", ("a==1", "--no-deps b==2")
    assert python_of(folder, pins) == python_of(folder, pins) == folder / "bin" / "python"
    assert calls == ["venv", "pip", "pip"]
    failing.append("no network")
    with pytest.raises(NotInstalledError):
        python_of(folder, ("a==2",))
    python_of(folder, ("a==2",))
    assert calls[3:] == ["venv", "pip", "venv", "pip"]


def test_every_requirement_is_an_exact_version_the_same_in_all_scripts_and_clients_are_chosen_by_name_or_system():
    pins = defaultdict(set)
    for client in CLIENTS:
        if client.name != VLLM:
            pins[client.name].add(client.requirements)
            name, _, number = client.requirements[0].removeprefix(environments.NO_DEPENDENCIES).partition("==")
            assert name.partition("[")[0] == client.name.partition("[")[0] and number
    assert all(len(each) == 1 for each in pins.values()), pins
    assert {client.system for client in choose(["openai"])} == {"packing", "bins"}
    assert {client.system for client in choose(["cascade"])} == {"cascade"}
    with pytest.raises(ValueError, match="opnai"):
        choose(["opnai"])
