"""The order of servers and loads, what each is sent, and which settings go on; servers and texts are stand-ins.

The slow test serves a tiny model of random weights by vLLM itself, where its environment is.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import replace

import pytest

from pliant.benchmarks.packing.vllm import contest, load, server
from pliant.benchmarks.packing.vllm.comparison import OURS, Figures, Load, Memory, Row, at_once
from pliant.benchmarks.packing.vllm.contest import FULL, QUICK, VllmConfig, best
from pliant.benchmarks.packing.vllm.decisions import DecisionConfig
from pliant.benchmarks.packing.vllm.load import Chat, Reply
from pliant.benchmarks.packing.vllm.server import FCFS, Contender, Setting
from tests.fixtures.packing import tiny_llama

NARROW, WIDE = Setting(4, 128), Setting(8, 128)
CHATS = [Chat(tuple(range(3, 5 + number)), f"prompt {number}") for number in range(6)]
CONFIG = VllmConfig(
    Memory("binds", 33, (at_once(4), Load(1.2, 6)), binds=True),
    trial=5,
    repeats=2,
    settings=(NARROW, WIDE),
    ours=WIDE,
    alone=3,
    limit=24,
    longest=120,
    decisions=DecisionConfig(running=4, waiting=4, steps=20, warmup=5),
)


def row(setting: Setting, mean: float, tokens: float) -> Row:
    figures = Figures(mean, mean, mean, tokens, 1.0, (0.0, 0.0))
    return Row("binds", "all at once", Contender(FCFS, setting), 0, figures, 0)


@pytest.mark.parametrize(("mean", "chosen"), [(7.0, [WIDE, NARROW]), (7.9, [WIDE]), (9.0, [WIDE])])
def test_the_fastest_goes_on_and_another_if_its_mean_completion_is_clearly_smaller(mean, chosen):
    tried = [row(NARROW, mean, 100.0), row(WIDE, 8.0, 120.0)]
    assert [contender.setting for contender in best(tried)] == chosen


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """Servers that are wide twice as fast as narrow; returns what was opened and sent."""
    opened, sent = [], []

    @contextmanager
    def serving(engine, contender, files):
        opened.append((engine, contender, files))
        yield len(opened) - 1

    def send(url, chats, arrivals, body):
        contender = opened[url][1]
        sent.append((contender, tuple(arrivals), body))
        seconds = 8.0 / contender.setting.sequences
        return [
            Reply(len(chat.ids), (1, 2, len(chat.ids)), seconds / 2, seconds, at)
            for chat, at in zip(chats, arrivals, strict=True)
        ]

    monkeypatch.setattr(server, "serving", serving)
    monkeypatch.setattr(load, "send", send)
    monkeypatch.setattr(load, "read_prompts", lambda *_args: CHATS)
    monkeypatch.setenv("PLIANT_HOME", str(tmp_path))
    return opened, sent


def test_vllms_own_are_tried_first_and_then_all_take_turns(fake):
    opened, _ = fake
    result = contest.measure(CONFIG, None)
    names = [(contender.name, contender.setting) for _, contender, _ in opened]
    tried = [(FCFS, NARROW), (FCFS, WIDE)]
    mains = [(FCFS, WIDE), (OURS, WIDE)]
    assert names == [*tried, *mains, *mains[::-1]]
    assert len(result.rows) == 2 * 2 * len(mains)
    assert result.rate == 5.0  # five answers in the second that the wide setting takes


def test_both_take_turns_load_by_load_and_the_other_way_round_in_the_next_repeat(fake):
    _, sent = fake
    contest.measure(replace(CONFIG, settings=(WIDE,)), None)
    salts = [f"{each.name} {repeat}" for repeat in range(2) for each in CONFIG.memory.loads]
    turns = [(body.salt, contender.name) for contender, _, body in sent if body.salt in salts]
    order = {salt: (FCFS, OURS) if salt.endswith("0") else (OURS, FCFS) for salt in salts}
    assert turns[1:] == [(salt, name) for salt in salts for name in order[salt]], "behind the trial"


def test_loads_come_at_the_same_rate_for_all_and_differ_by_repeat(fake):
    _, sent = fake
    contest.measure(CONFIG, None)
    turns = {}
    for contender, arrivals, body in sent:
        if body.salt.startswith("1.2x") and len(arrivals) == 6 and contender.setting == WIDE:
            turns.setdefault((body.salt, arrivals), set()).add(contender.name)
    poisson = [key for key in turns if key[1][-1] == pytest.approx(6 / 6.0)]
    assert len(poisson) == 2
    assert turns[poisson[0]] == {FCFS, OURS}


def test_the_result_has_a_row_for_each_and_targets(fake):
    result = contest.measure(CONFIG, None)
    assert len(result.table()) == 2 * 2
    targets = {target.name: target for target in result.targets()}
    assert targets["binds, all at once: tokens/s over vLLM's"].measured == pytest.approx(1.0)
    assert targets["greedy texts that differ, beyond those of vLLM's own runs"].met
    assert len(result.plain()["rows"]) == len(result.rows)


def test_this_part_is_skipped_where_something_is_missing(monkeypatch, tmp_path):
    monkeypatch.setenv(server.PYTHON, str(tmp_path / "none"))
    assert contest.missing()


@pytest.mark.slow
@pytest.mark.skipif(not server.python().is_file(), reason=f"needs vLLM's environment ({server.PYTHON})")
def test_vllm_serves_a_tiny_model_under_both_schedulers(tmp_path, monkeypatch):
    monkeypatch.setenv(server.PYTHON, str(server.python()))
    monkeypatch.setenv("PLIANT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(server.WEIGHTS, str(tiny_llama.write(tmp_path / "model")))
    monkeypatch.setattr(load, "read_prompts", lambda *_args: CHATS)
    config = replace(CONFIG, repeats=1, settings=(WIDE,))
    result = contest.measure(config, None)
    assert {row.contender.name for row in result.rows} == {FCFS, OURS}
    assert all(row.figures.tokens > 0 for row in result.rows)
    assert sum(row.differing for row in result.rows) == 0


def test_both_settings_measure_all_that_has_a_target_where_memory_binds():
    assert [each.name for each in QUICK.memory.loads] == ["all at once", "0.5x, Poisson", "1.2x, Poisson"]
    assert {each.factor for each in FULL.memory.loads} == {math.inf, 0.5, 1.2, 1.5}
    assert FULL.repeats == 5 and {setting.chunked for setting in FULL.settings} == {True, False}
