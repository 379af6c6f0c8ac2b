"""What a server is started with, and why it cannot be."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pliant.benchmarks.packing.vllm import server
from pliant.benchmarks.packing.vllm.server import CLASS, FCFS, Contender, Engine, Files, Setting
from pliant.errors import WorkerError

ENGINE = Engine(Path("folder"), 65, 512)


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path / "log", tmp_path)


def words(contender: Contender) -> str:
    return " ".join(server.command(ENGINE, contender, 1))


def test_the_first_thing_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PLIANT_HOME", str(tmp_path))
    monkeypatch.delenv(server.PYTHON, raising=False)
    monkeypatch.delenv(server.WEIGHTS, raising=False)
    assert str(tmp_path / "engines" / "vllm" / "bin" / "python") in server.missing("some-model")
    monkeypatch.setenv(server.PYTHON, str(tmp_path / "none"))
    assert server.PYTHON in server.missing("some-model")
    monkeypatch.setenv(server.PYTHON, sys.executable)
    assert str(tmp_path / "models" / "some-model") in server.missing("some-model")
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setenv(server.WEIGHTS, str(tmp_path))
    assert server.missing("some-model") == ""


def test_each_scheduler_is_started_with_its_options():
    setting = Setting(16, 256)
    assert "scheduler-cls" not in words(Contender(FCFS, setting))
    assert f"--scheduler-cls {CLASS}" in words(Contender("Pliant s3", setting, "s3"))


def test_the_setting_and_the_memory_are_those_of_the_contender():
    text = words(Contender(FCFS, Setting(16, 256, chunked=False)))
    for option in (
        *("--max-num-seqs 16", "--max-num-batched-tokens 256", "--no-enable-chunked-prefill"),
        *("--num-gpu-blocks-override 65", "--max-model-len 512", "--host 127.0.0.1"),
    ):
        assert option in text


def test_only_pliants_scheduler_gets_settings_and_nobody_elses(files, monkeypatch, tmp_path):
    monkeypatch.setenv("PLIANT_SCHEDULER_SAFETY", "3")
    theirs = server.environment(Contender(FCFS, Setting(16, 256)), files)
    assert not [name for name in theirs if name.startswith("PLIANT_SCHEDULER")]
    predicted = Files(files.log, files.folder, tmp_path)
    ours = server.environment(Contender("Pliant s3", Setting(16, 256), "s3"), predicted)
    assert {name: value for name, value in ours.items() if name.startswith("PLIANT_SCHEDULER")} == {
        "PLIANT_SCHEDULER_POLICY": "s3",
        "PLIANT_SCHEDULER_PREDICTOR": str(tmp_path),
    }


def test_a_server_that_ends_at_once_says_where_its_log_is(files, monkeypatch):
    monkeypatch.setattr(server, "command", lambda *_args: [sys.executable, "-c", "print('a reason'); exit(3)"])
    with pytest.raises(WorkerError, match="status 3"), server.serving(ENGINE, Contender(FCFS, Setting(1, 1)), files):
        pass
    assert "a reason" in files.log.read_text()
