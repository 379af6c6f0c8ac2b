"""`pliant journal` on the journals of all four systems: a summary, a life, a trace, and the same arrivals once more."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise

import pytest

from pliant.bins.knowledge import Config, knowledge_of
from pliant.bins.scheduler import BinsScheduler
from pliant.bins.simulated import SimulatedBins
from pliant.cli.packing.journal import entries, lasted, prompts_of
from pliant.journal import encode
from pliant.packing.scheduling import journal as packing_journal
from pliant.packing.scheduling.reference import rules_of
from pliant.packing.scheduling.simulated import simulate as generate
from pliant.protocol import Answer, Arrived, Drop, Finished, JournalEntry, Launch, Request, Restarted
from pliant.report import report
from pliant.serving.journal import FileRecorder
from pliant.serving.request_context import REQUEST_ID, holding
from pliant.simulator import simulate
from tests.cli.test_simulate import MAIL, TINY, publish_bins, publish_cascade, publish_packing, publish_tokens
from tests.fixtures.commands import columns, refused, shown
from tests.fixtures.packing.scenarios import CONTEXT
from tests.fixtures.places import ROOT

GOLDEN = {name: ROOT / "tests/golden" / f"{name}.jsonl" for name in ("tokens", "bins", "cascade", "packing")}
NAMES = {"tokens": "digits", "bins": "mail", "cascade": "things"}


def written(path, journal):
    path.write_text("".join(encode(entry) + "\n" for entry in journal))
    return path


def arrivals(system: str, count: int = 30) -> list[JournalEntry]:
    """Requests that come every 20 ms, are answered 10 ms later alone on a device, and are worth 1."""
    journal, length = [], 0 if system == "tokens" else 20
    for id in range(count):
        at = 5.0 + id / 50
        request = Request(id, at, at + 2.0, NAMES[system], 1.0, length)
        journal += [
            JournalEntry(at, Arrived(request), (Launch(id, 0, (id,), 0),)),
            JournalEntry(at + 0.01, Finished(id, 0.01), (Answer(id, id),)),
        ]
    return journal


@pytest.fixture
def generated(tmp_path):
    """A journal of packing with an entry an iteration, some of whose sequences are preempted, and the outputs' lengths."""
    from pliant.cli.packing.simulate import requests_of

    prompts = requests_of("poisson:200:2", TINY, CONTEXT, 0).prompts
    lengths, path = {prompt.id: prompt.exact for prompt in prompts}, tmp_path / "packing.jsonl"
    with path.open("w") as file:
        observe = lambda now, given, plan, _: file.write(packing_journal.encode(now, given, plan) + "\n")  # noqa: E731
        rules = rules_of(TINY, CONTEXT, "paged")
        run = generate(prompts, lengths, rules, TINY.memory, TINY.steps, leaps=False, observe=observe)
    return path, lengths, run


def test_iterations_take_what_they_cost_where_nothing_else_takes_time(generated):
    path, _, run = generated
    expected, took = zip(*lasted(path, TINY.steps), strict=True)
    assert len(took) in (run.iterations, run.iterations - 1)
    assert took == pytest.approx(expected)


@pytest.mark.parametrize("system", GOLDEN)
def test_a_trace_has_every_launch_once_on_its_device_and_every_request_from_its_arrival_to_its_end(
    system, here, tmp_path, capsys
):
    out = tmp_path / "trace.json"
    assert "ui.perfetto.dev" in shown(["journal", str(GOLDEN[system]), "--perfetto", str(out)], capsys)
    events, tracks, depth = json.loads(out.read_text())["traceEvents"], defaultdict(list), defaultdict(int)
    for event in events:
        if event["ph"] == "X":
            tracks[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        if event["ph"] in "be":
            depth[event["id"]] += 1 if event["ph"] == "b" else -1
    summary = shown(["journal", str(GOLDEN[system])], capsys)
    assert summary.startswith(f"{len(depth)} requests in ") and set(depth.values()) == {0}
    assert tracks and all(a[1] <= b[0] + 0.2 for spans in tracks.values() for a, b in pairwise(spans))
    counts = [event["args"] for event in events if event["ph"] == "C"]
    assert max(count["waiting"] for count in counts) > 2 and counts[-1]["waiting"] == 0


def test_the_life_of_a_request_says_what_it_waited_for_where_it_ran_and_how_it_ended(registry, tmp_path, capsys):
    publish_bins(registry)
    known, requests = knowledge_of([MAIL]), [Request(i, 2.0, 2.1 + i, "mail", 1.0, 500) for i in range(4)]
    journal = simulate(BinsScheduler(known, Config()), requests, SimulatedBins(known, requests))
    path = str(written(tmp_path / "journal.jsonl", journal))
    text = shown(["journal", path, "--request", "3", "--system", "bins"], capsys)
    assert "Request 3 of 500 tokens came for mail, with 3.100 s to its deadline; 2 waited before it." in text
    assert "It had waited " in text and "launches with " in text and "mail/512x" in text and "answered in time" in text
    text = shown(["journal", path, "--request", "3"], capsys)
    assert "with setting " in text
    with holding(REQUEST_ID, 'order "3"'):
        recorder = FileRecorder(tmp_path / "named.jsonl")
        for entry in journal:
            recorder(entry)
        recorder.close()
    parts = shown(["journal", str(tmp_path / "named.jsonl"), "--request", 'order "3"'], capsys).split("\n\n")
    assert [part.partition("Request ")[2][0] for part in parts] == [*"0123"]
    clocks, sentences = zip(*(line.split(" UTC", 1) for line in parts[3].splitlines()), strict=True)
    assert list(sentences) == text.splitlines()
    assert abs(datetime.now(UTC).replace(tzinfo=None) - datetime.fromisoformat(clocks[0])) < timedelta(minutes=5)
    passed = [datetime.fromisoformat(clock) - datetime.fromisoformat(clocks[0]) for clock in clocks]
    seconds = [float(line.partition(" s  ")[0]) for line in sentences]
    assert [each.total_seconds() for each in passed] == pytest.approx([each - seconds[0] for each in seconds], abs=2e-3)
    assert " s since 20" in shown(["journal", str(tmp_path / "named.jsonl")], capsys)
    assert "--request is order" in refused(["journal", path, "--request", "order-3"], capsys)
    path = str(
        written(
            tmp_path / "journal.jsonl",
            [
                JournalEntry(0.0, Arrived(requests[0]), ()),
                JournalEntry(0.5, Restarted("a bug"), ()),
                JournalEntry(0.5, Arrived(requests[0]), (Drop(0, "late"),)),
            ],
        )
    )
    lines = shown(["journal", path, "--request", "0"], capsys).splitlines()
    assert [line.split("  ")[-1].split()[0] for line in lines] == ["Request", "The", "It"]
    assert 'refused as "late": no way to serve it would have been in time' in lines[-1]


@pytest.mark.parametrize("system", NAMES)
def test_the_same_arrivals_are_simulated_under_another_policy_beside_what_happened(system, registry, tmp_path, capsys):
    publish = {"tokens": publish_tokens, "bins": publish_bins, "cascade": publish_cascade}[system]
    publish(registry)
    path = str(written(tmp_path / "journal.jsonl", arrivals(system)))
    policy = {"tokens": "pets", "bins": "first-come", "cascade": "single"}[system]
    table = columns(shown(["journal", path, "--system", system, "--what-if", policy], capsys))
    assert table[""] == ["as it happened", "default, simulated", f"{policy}, simulated"]
    assert table["requests"] == ["30"] * 3 and table["in time"] == ["100.0%"] * 3
    assert table["p50 ms"][0] == "10.0" and len({*table["p50 ms"]}) > 1
    assert "nonsense" in refused(["journal", path, "--system", system, "--what-if", "nonsense"], capsys)


def test_outputs_of_packing_are_as_long_as_the_engine_made_them_also_after_preemption(generated, registry, capsys):
    path, lengths, run = generated
    publish_packing(registry)
    assert sum(fate.preemptions for fate in run.fates) > 0
    prompts, counted = prompts_of(path)
    missing = set(lengths) - set(counted)  # ended in the last iteration, behind which nothing is decided
    assert counted == {id: length for id, length in lengths.items() if id in counted} and len(missing) <= 2
    assert [prompt.id for prompt in prompts] == sorted(lengths)
    happened = report(entries(path))
    assert happened.requests == len(lengths) and happened.outcomes.get("waiting", 0) == len(missing)
    table = columns(shown(["journal", str(path), "--what-if", "paged"], capsys))
    assert float(table["p50 ms"][2]) == pytest.approx(float(table["p50 ms"][0]), rel=0.05)  # the same once more
    assert "must be one of" in refused(["journal", str(path), "--what-if", "nonsense"], capsys)


def test_what_is_no_journal_and_whom_it_does_not_hold_are_refused_and_a_cut_end_is_passed_over(here, tmp_path, capsys):
    path = tmp_path / "journal.jsonl"
    for content in ("", "no journal\n", '{"continues": 3}\n', '{"a": 1}\n', "[1]\n", '{"now": 1.0'):
        path.write_text(content)
        assert "journal" in refused(["journal", str(path)], capsys), content
    refusal = partial(refused, capsys=capsys)
    assert "can be read" in refusal(["journal", str(tmp_path / "missing")])
    content = GOLDEN["bins"].read_text()
    path.write_text(content + content[:50])
    assert main_output(path, capsys) == main_output(GOLDEN["bins"], capsys)
    assert "--request is 9999" in refusal(["journal", str(GOLDEN["bins"]), "--request", "9999"])
    assert "bins or cascade" in refusal(["journal", str(GOLDEN["bins"]), "--what-if", "default"])
    assert "--system" in refusal(["journal", str(GOLDEN["bins"]), "--system", "packing"])
    assert "--system" in refusal(["journal", str(GOLDEN["packing"]), "--system", "bins"])
    assert "--perfetto" in refusal(["journal", str(GOLDEN["bins"]), "--perfetto", str(tmp_path / "no" / "out")])
    path.write_text("\nrubbish\n".join(content.partition("\n")[::2]))
    assert "line 2" in refusal(["journal", str(path)])


def main_output(path, capsys) -> str:
    return shown(["journal", str(path)], capsys)
