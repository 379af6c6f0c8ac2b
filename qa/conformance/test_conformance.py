"""What the runner says of clients that pass, fail or cannot be installed; and a part of it against a live service."""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from pliant.errors import PliantError
from qa.conformance import environments, run
from qa.conformance.catalog import CLIENTS, VLLM, Client, choose
from qa.conformance.environments import NotInstalledError, python_of, requirements_of
from qa.conformance.results import FAILED, NOT_RUN, PASSED, Row, Step, status, table
from qa.conformance.services import SYSTEMS, LiveService, live
from serving.packing.vllm import engine

OK, BAD, LEFT_OUT = (
    Step("chats", True, ""),
    Step("echo", False, "AssertionError: no"),
    Step("pictures", None, "reads none"),
)


def row(*steps: Step, **fields) -> Row:
    return Row("a-client", "1.2", "packing", steps, **fields)


def script(folder: Path, text: str) -> Client:
    """A client whose script is `text`."""
    path = folder / "script.py"
    path.write_text(text)
    return Client("a-client", str(path), "packing", settings=False)


@pytest.fixture
def runner(tmp_path):
    return run.Runner(tmp_path / "conformance", tmp_path / "no-such-file", "quick")


def use(runner, client: Client) -> Row:
    return runner.use(client, Path(sys.executable), LiveService("packing", "http://127.0.0.1:9", "tales", None))


@pytest.mark.parametrize(
    ("made_of", "result"),
    [
        (row(OK), PASSED),
        (row(OK, LEFT_OUT), PASSED),
        (row(OK, BAD), FAILED),
        (row(OK, reason="it made no end"), FAILED),
        (row(), FAILED),
        (row(LEFT_OUT), FAILED),
        (row(reason="no network", installed=False), NOT_RUN),
    ],
)
def test_a_client_passes_only_if_it_did_something_and_all_of_it_went_well(made_of, result):
    assert made_of.result == result


def test_the_exit_status_is_1_if_a_client_failed_or_none_was_run():
    absent = row(reason="no network", installed=False)
    assert status([row(OK), absent]) == 0
    assert status([row(OK), row(BAD)]) == status([absent]) == status([]) == 1


def test_the_table_has_a_line_for_each_client_and_says_below_it_what_failed_and_what_was_left_out():
    text = table([row(OK, BAD, LEFT_OUT, seconds=2.6), row(reason="no network", installed=False)])
    lines = text.splitlines()
    assert lines[2].split("  ")[0] == "a-client" and lines[2].split()[-5:] == ["failed", "1", "of", "2", "3"]
    assert "a-client against packing: failed: echo: AssertionError: no" in lines
    assert "a-client against packing: left out: pictures: reads none" in lines
    assert "a-client against packing: not run: no network" in lines


def test_what_a_script_prints_becomes_its_row(runner, tmp_path):
    line = '{"client": "a-client", "version": "7", "did": "chats", "ok": %s, "detail": ""}'
    client = script(
        tmp_path, f"print('a warning')\nprint('{line % 'true'}')\nprint('{line % 'false'}')\nraise SystemExit(1)"
    )
    result = use(runner, client)
    assert (result.version, result.result, result.reason) == ("7", FAILED, "")
    assert [step.ok for step in result.steps] == [True, False]


@pytest.mark.parametrize(
    "text",
    ["", "import no_such_module", "print('{}')", "print('[1]')"],
)
def test_a_script_that_prints_no_step_fails(runner, tmp_path, text):
    result = use(runner, script(tmp_path, text))
    assert result.result == FAILED and "ended with status" in result.reason


def test_a_script_that_ends_badly_fails_even_if_all_its_steps_went_well(runner, tmp_path):
    text = """print('{"client": "a", "version": "7", "did": "chats", "ok": true, "detail": ""}'); raise SystemExit(3)"""
    assert "status 3" in use(runner, script(tmp_path, text)).reason


def test_a_script_that_makes_no_end_is_stopped(runner, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "LIMIT", 1.0)
    result = use(runner, script(tmp_path, "import time\ntime.sleep(600)"))
    assert result.result == FAILED and "made no end" in result.reason


def test_a_client_has_nothing_of_pliant_around_it_and_no_network(runner, tmp_path, monkeypatch):
    monkeypatch.setenv("PLIANT_KEYS_FILE", "keys.json")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    seen = run.variables(Client("aiperf", "x.py", "packing", hub_offline=False), Path("/env/bin/python"), tmp_path)
    assert not any(name.startswith(("PLIANT", "PYTHON")) for name in seen)
    assert seen["HOME"] == str(tmp_path) and seen["PATH"].split(os.pathsep)[0] == "/env/bin"
    assert seen["HTTPS_PROXY"] == seen["HF_ENDPOINT"] and "HF_HUB_OFFLINE" not in seen
    assert run.variables(CLIENTS[0], Path("/env/bin/python"), tmp_path)["HF_HUB_OFFLINE"] == "1"


def test_a_client_that_cannot_be_installed_is_not_run(runner, monkeypatch):
    def refuse(*_):
        raise NotInstalledError("error: no network")

    monkeypatch.setattr(run, "python_of", refuse)
    (result,) = runner.run(choose(["llm-comply"]))
    assert (result.result, result.reason) == (NOT_RUN, "error: no network")


def test_vllm_is_not_run_where_it_is_not_installed(runner, monkeypatch):
    monkeypatch.delenv(run.VLLM_PYTHON, raising=False)
    (result,) = runner.run(choose([VLLM]))
    assert result.result == NOT_RUN and engine.INSTALL in result.reason


def test_an_environment_is_made_anew_only_if_its_pins_change_or_it_was_never_finished(tmp_path, monkeypatch):
    calls, failing = list[tuple[str, ...]](), list[str]()

    def fake_uv(cache: Path, *words: str) -> None:
        calls.append(words)
        if words[0] == "venv":
            Path(words[-1]).mkdir()
        elif failing:
            raise NotInstalledError("no network")

    monkeypatch.setattr(environments, "_uv", fake_uv)
    folder, pins = tmp_path / "a", ("a==1", "--no-deps b==2")
    assert python_of(folder, pins) == python_of(folder, pins) == folder / "bin" / "python"
    assert [words[0] for words in calls] == ["venv", "pip", "pip"]
    assert calls[1][-1] == "a==1" and calls[2][-2:] == ("--no-deps", "b==2")
    failing.append("now")
    with pytest.raises(NotInstalledError):
        python_of(folder, ("a==2",))
    failing.clear()
    python_of(folder, ("a==2",))
    assert [words[0] for words in calls[3:]] == ["venv", "pip", "venv", "pip"]


def test_a_package_that_is_not_there_is_said_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("UV_OFFLINE", "1")
    with pytest.raises(NotInstalledError, match="no-such-package"):
        python_of(tmp_path / "a", ("no-such-package-of-pliant==1",))
    assert not (tmp_path / "a" / "pins.json").exists()


def test_every_requirement_is_an_exact_version_and_a_client_has_the_same_ones_in_all_scripts():
    pins = defaultdict(set)
    for client in CLIENTS:
        if client.name != VLLM:
            pins[client.name].add(client.requirements)
            first = client.requirements[0].removeprefix(environments.NO_DEPENDENCIES)
            name, _, number = first.partition("==")
            assert name.partition("[")[0] == client.name.partition("[")[0] and number, first
    assert all(len(each) == 1 for each in pins.values()), pins


def test_requirements_are_read_without_running_the_script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text("import no_such_module\nREQUIREMENTS: dict = {'a': ('a==1',)}\n")
    assert requirements_of(path) == {"a": ("a==1",)}
    path.write_text("REQUIREMENTS = None\n")
    with pytest.raises(ValueError, match="has no REQUIREMENTS"):
        requirements_of(path)


def test_clients_are_chosen_by_name_or_by_system():
    assert {client.system for client in choose(["openai"])} == {"packing", "bins"}
    assert {client.system for client in choose(["cascade"])} == {"cascade"}
    assert choose([]) == list(CLIENTS)
    with pytest.raises(ValueError, match="client is 'opnai', but must be one of"):
        choose(["opnai"])


def test_an_unknown_client_is_an_error_of_the_command_line(capsys):
    with pytest.raises(SystemExit) as ended:
        run.main(["--only", "opnai"])
    assert ended.value.code == 2 and "opnai" in capsys.readouterr().err


@pytest.mark.parametrize(("steps", "ended"), [((OK,), 0), ((OK, BAD), 1)])
def test_the_command_prints_the_table_keeps_the_results_and_ends_with_the_status(
    tmp_path, monkeypatch, capsys, steps, ended
):
    monkeypatch.setenv("PLIANT_HOME", str(tmp_path))
    monkeypatch.setattr(run.Runner, "run", lambda self, clients: iter([row(*steps)]))
    assert run.main(["--only", "openai"]) == ended
    assert capsys.readouterr().out == table([row(*steps)])
    (kept,) = json.loads((tmp_path / "conformance" / "results.json").read_text())
    assert kept["result"] == (FAILED if ended else PASSED)


def test_of_a_service_that_ended_the_log_alone_is_kept(tmp_path):
    (tmp_path / "artifacts").mkdir()
    for name in ("artifacts/weights", "mlflow.db", "serve.log"):
        (tmp_path / name).write_text("")
    run.keep_log(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["serve.log"]


def test_a_service_that_does_not_start_fails_its_clients(runner, monkeypatch):
    def fail(system: str, folder: Path):
        raise PliantError("it has no memory")

    monkeypatch.setattr(run, "python_of", lambda folder, requirements: Path(sys.executable))
    monkeypatch.setattr(run, "live", fail)
    results = list(runner.run(choose(["openai"])))
    assert [result.result for result in results] == [FAILED, FAILED] and "it has no memory" in results[0].reason


def test_rows_are_real_reviews_or_else_sentences_of_the_documentation(tmp_path):
    import pandas

    reviews, rows = tmp_path / "reviews.parquet", tmp_path / "rows.jsonl"
    run.write_rows(reviews, rows, 5)
    assert len(rows.read_text().splitlines()) == 5
    pandas.DataFrame({"text": ["good"] * 9, "label": [1] * 9}).to_parquet(reviews)
    run.write_rows(reviews, rows, 5)
    assert rows.read_text() == '{"text": "good", "label": 1}\n' * 5


@pytest.mark.slow
def test_openais_client_does_all_of_its_part_with_a_live_service(tmp_path, monkeypatch):
    monkeypatch.delenv("PLIANT_SMOLLM2", raising=False)
    ours = run.Runner(tmp_path / "conformance", tmp_path / "no-such-file", "quick")
    with live("packing", tmp_path / "service") as service:
        client = choose(["openai"])[0]
        result = ours.use(client, Path(sys.executable), service)
    assert result.result == PASSED and len(result.steps) >= 14, table([result])
    assert result.version == version("openai")


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_no_answer_to_schemathesis_is_off_the_pages_of_a_live_service(tmp_path, monkeypatch, system):
    monkeypatch.delenv("PLIANT_SMOLLM2", raising=False)
    ours = run.Runner(tmp_path / "conformance", tmp_path / "no-such-file", "quick")
    (client,) = (each for each in choose(["schemathesis"]) if each.system == system)
    with live(system, tmp_path / "service") as service:
        few = replace(client, arguments=(*client.arguments, "--examples", "100"))
        result = ours.use(few, Path(sys.executable), service)
    assert result.result == PASSED, table([result])
    assert result.version == version("schemathesis")


@pytest.mark.slow
def test_tritons_client_does_all_of_its_part_with_a_live_service(tmp_path):
    ours = run.Runner(tmp_path / "conformance", tmp_path / "no-such-file", "quick")
    client = next(client for client in choose(["cascade"]) if client.name.startswith("tritonclient"))
    try:
        python = python_of(
            tmp_path / "environment", client.requirements
        )  # its pins are not those of our own environment
    except NotInstalledError as error:
        pytest.skip(f"tritonclient cannot be installed here: {error}")
    with live("cascade", tmp_path / "service") as service:
        result = ours.use(client, python, service)
    assert result.result == PASSED, table([result])
