"""Loads that `pliant simulate SYSTEM` takes, as requests, and what it shows of them and compares."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from pliant import comparison
from pliant.bins.policies import POLICIES as BINS_POLICIES
from pliant.cascade.artifact import Cascade, Outputs
from pliant.cascade.plan import PlanConfig
from pliant.cascade.simulated import ReferenceConfig
from pliant.cli.bins import simulate as bins_command
from pliant.cli.cascade import simulate as cascade_command
from pliant.cli.packing import simulate as packing_command
from pliant.cli.packing.simulate import HEADINGS
from pliant.cli.tokens import simulate as tokens_command
from pliant.errors import InputError
from pliant.flows.cascade.champions import Record, Saved
from pliant.flows.champions import RECORD, record_to_json
from pliant.flows.settings import read
from pliant.packing.scheduling.policies import EarliestDeadline
from pliant.packing.scheduling.policy import POLICIES as PACKING_POLICIES
from pliant.packing.scheduling.request import Memory
from pliant.profiling.cascade.latency import LatencyConfig
from pliant.registry.names import BINS_PREFIX, CASCADE_TASK, PACKING_GENERATOR, PACKING_PREFIX
from pliant.registry.store import FolderStore
from tests.fixtures.bins.scenarios import bins
from tests.fixtures.cascade.artifacts import things
from tests.fixtures.cascade.tiny import some_cascade, some_outputs
from tests.fixtures.commands import KINDS, cells, columns, refused, shown, write_trace
from tests.fixtures.load_samples import bundle
from tests.fixtures.packing import in_process
from tests.fixtures.packing.scenarios import CONTEXT, packing
from tests.fixtures.tokens.samples import tiny_backbone, tiny_profile, tiny_task

MAIL, NOTES = bins(batches=(1, 2), placement="shared"), bins("notes", lengths=(64, 128), slo=0.45)
TINY = packing()


OUTPUTS = some_outputs()


def publish_tokens(registry) -> None:
    digest = registry.publish("pliant-tokens-backbone", tiny_backbone())
    registry.publish("pliant-tokens-profile", tiny_profile(digest, "a device"))
    registry.publish("pliant-tokens-task-digits", tiny_task("digits", ("zero", "one"), digest))


def publish_bins(registry) -> None:
    registry.publish(BINS_PREFIX + "mail", MAIL)


def publish_cascade(registry, cascade: Cascade | None = None, outputs: Outputs = OUTPUTS) -> FolderStore:
    """A task in the registry, and the store with its outputs on the test split."""
    store = FolderStore(read().store)
    saved = Saved("cascade/test", store.save("cascade/test", outputs))
    record = Record(PlanConfig(), LatencyConfig(), 1, saved, saved)
    registry.publish(CASCADE_TASK + "things", cascade or some_cascade(outputs), tags={RECORD: record_to_json(record)})
    return store


def publish_packing(registry) -> None:
    digest = registry.publish(PACKING_GENERATOR + "tiny", in_process.generator(name="tiny", context=CONTEXT))
    registry.publish(PACKING_PREFIX + "tiny", replace(TINY, generator=digest), tags={"pliant.generator": "1"})


@pytest.mark.parametrize("kind", KINDS)
def test_every_request_of_a_recorded_trace_is_simulated_in_its_order_and_with_its_lengths(
    kind, registry, tmp_path, capsys
):
    def simulated(system: str, *options: str, **trace: list[float]) -> str:
        load = write_trace(tmp_path, kind, {"seconds": [907.0, 905.0, 905.5], **trace})
        return shown(["simulate", system, "--load", load, *options], capsys)

    for publish in (publish_tokens, publish_bins, publish_cascade, publish_packing):
        publish(registry)
    rows = dict(cells(simulated("tokens", note=[1, 2, 3])))
    assert (rows["requests"], rows["attainment"]) == ("3", "1")
    table = columns(simulated("bins", length=[60, 120, 9999]))
    assert (set(table["requests"]), len(table["requests"]), table["in time"][0]) == ({"3"}, 4, "100.0%")
    assert table["ran as"][:2] == ["64:33% 128:33% 512:33%", "512:100%"]
    table = columns(simulated("cascade", note=[1, 2, 3]))
    assert table["candidate"] == ["default", "single"]
    assert (table["requests"], table["in time"]) == (["3"] * 2, ["100.0%"] * 2)
    lengths = {"prompt_tokens": [30, 20, CONTEXT], "output_tokens": [50, 40, 1]}
    text = simulated("packing", "--policy", "default", **lengths)
    assert "(1 requests too long, left out)" in " ".join(text.split())
    table = columns(text)
    assert table["requests"] == ["2"]
    assert float(table["tokens/s"][0]) * 2 / float(table["requests/s"][0]) == pytest.approx(50 + 40, rel=0.05)


@pytest.mark.parametrize(
    ("publish", "trace", "sentence"),
    [
        (publish_bins, {}, "it has no length"),
        (publish_bins, {"length": [0]}, "lengths of at least 1 token"),
        (publish_packing, {"prompt_tokens": [5]}, "it has no output_tokens"),
        (publish_packing, {"prompt_tokens": [5], "output_tokens": [0]}, "prompts and outputs of at least 1 token"),
        (publish_packing, {"prompt_tokens": [CONTEXT], "output_tokens": [5]}, "load is"),
    ],
)
def test_a_trace_without_usable_lengths_is_refused_with_a_sentence(
    publish, trace, sentence, registry, tmp_path, capsys
):
    publish(registry)
    load = write_trace(tmp_path, "csv", {"seconds": [1.0], **trace})
    assert sentence in refused(["simulate", publish.__name__.removeprefix("publish_"), "--load", load], capsys)


@pytest.mark.parametrize(
    ("requests_of", "parts"), [(bins_command.requests_of, [NOTES]), (tokens_command.requests_of, bundle())]
)
def test_the_reference_load_grows_with_the_number_of_devices(requests_of, parts):
    single, double = (len(requests_of("reference", parts, workers, 0)) for workers in (1, 2))
    assert double == pytest.approx(2 * single, rel=0.1)


def test_bins_a_load_has_the_streams_asked_for_and_lengths_as_the_champion_was_made_for():
    requests = bins_command.requests_of("poisson:200:5", [MAIL, NOTES], 1, 0)
    assert len(requests) == pytest.approx(1000, rel=0.15) and max(request.arrival for request in requests) < 5.0
    slos = {(request.task, round(request.deadline - request.arrival, 6)) for request in requests}
    assert slos == {("mail", 0.15), ("notes", 0.45)}
    assert max(request.length for request in requests if request.task == "notes") <= 128
    observed = np.zeros(513, np.int64)
    observed[[20, 300]] = 30, 10
    drawn = bins_command.typical_of(replace(MAIL, lengths=observed))
    assert np.bincount(drawn, minlength=301)[[20, 300]].tolist() == [375, 125]
    assert set(bins_command.typical_of(replace(MAIL, lengths=np.zeros(513, np.int64)))) == {512}


def test_bins_ours_is_served_by_the_policy_asked_for_and_the_others_as_ever():
    rows = {}
    for policy in BINS_POLICIES:
        table = bins_command.compared([MAIL], "poisson:700:1", "completion", "shared", 1, 0, policy)
        rows[policy] = list(zip(*(column.cells for column in table.columns), strict=True))
    assert [rows[policy][0][0] for policy in rows] == ["ours, shared", "first-come, shared"]
    assert len({row[0][1:] for row in rows.values()}) == 2 and len({tuple(row[1:]) for row in rows.values()}) == 1


@pytest.mark.parametrize(
    ("dispatch", "placement", "policy", "match"),
    [
        ("completion", "both", "default", "placement is both"),
        ("random", "single", "default", "dispatch is random"),
        ("published", None, "default", "placement single"),
        ("completion", "single", "first-come", "policy is first-come, but must be default"),
    ],
)
def test_bins_what_the_scheduler_does_not_know_is_refused(dispatch, placement, policy, match):
    with pytest.raises(InputError, match=match):
        bins_command.compared([MAIL], "poisson:100:1", dispatch, placement, 2, 0, policy)


class First:
    """An own policy: one request after the other, in the first setting that takes it."""

    def __init__(self, known):
        self.known = known

    def choose(self, waiting, now):
        streams = getattr(self.known, "streams", ())
        return streams[0].cost(waiting[0].length)[0] if streams else self.known.latency.settings[0], waiting[:1]


def test_an_installed_policy_is_simulated_on_the_champions_profile(registry, monkeypatch):
    monkeypatch.setattr(comparison, "resolve", lambda system, policy: policy if policy != "mine" else own[system])
    own = {"tokens": First, "bins": First, "packing": EarliestDeadline}
    publish_tokens(registry)
    report = tokens_command.simulate_load("poisson:20:5", "mine", None, 1, 0)
    assert report.batch == 1 and len(report.settings) == 1
    with pytest.raises(InputError, match="gamma"):
        tokens_command.simulate_load("poisson:20:5", "mine", 0, 1, 0)
    table = bins_command.compared([MAIL], "poisson:100:1", "completion", "shared", 1, 0, "mine")
    assert next(iter(table.columns[0].cells)) == "mine" and table.row_count == 5
    with pytest.raises(InputError, match="shared"):
        bins_command.compared([MAIL], "poisson:100:1", "completion", "single", 1, 0, "mine")
    rows = [
        [next(iter(each.cells)) for each in packing_command.compared(TINY, CONTEXT, "poisson:100:3", name, 0).columns]
        for name in ("mine", "edf", "default")
    ]
    assert rows[0][1:] == rows[1][1:] != rows[2][1:]


def test_cascade_the_reference_load_is_simulated_for_the_candidate_that_is_named(registry, capsys, monkeypatch):
    store = publish_cascade(registry)
    monkeypatch.setattr(cascade_command, "ReferenceConfig", partial(ReferenceConfig, seconds=1.0))  # a short one
    command = ["simulate", "cascade", "--load", "reference", "--candidate", "single"]
    table = columns(shown(command, capsys))
    assert table["candidate"] == ["single"] and int(table["requests"][0]) > 100
    for load in ("nonsense", "trace.parquet", "poisson:1e9:1e9"):
        assert f"load is {load}, but must be" in refused(["simulate", "cascade", "--load", load], capsys)
    for file in store.path("cascade/test").iterdir():
        file.unlink()
    assert "run `pliant train cascade` again" in refused(command, capsys)


def test_cascade_answers_of_a_bag_and_an_exit_are_told_by_their_names(registry, capsys):
    sample = things(distilled=True)
    publish_cascade(registry, sample.cascade, sample.outputs)
    table = columns(shown(["simulate", "cascade", "--load", "poisson:20:20"], capsys))
    assert table["candidate"] == ["default", "single"]
    default, single = table["level"]
    assert single == "large:100%"
    assert sorted(part.split(":")[0] for part in default.split()) == ["bag", "exit1", "large"]


def test_packing_a_poisson_load_draws_observed_requests_with_their_own_forecasts():
    prompts = packing_command.requests_of("poisson:100:5", TINY, CONTEXT, 0).prompts
    assert len(prompts) == pytest.approx(500, rel=0.15) and max(prompt.arrival for prompt in prompts) < 5.0
    columns = zip(TINY.prompt_tokens, TINY.output_tokens, TINY.forecasts, strict=True)
    observed = {(int(p), int(o)): tuple(f.tolist()) for p, o, f in columns}
    assert all(observed[prompt.tokens, prompt.exact] == prompt.forecast for prompt in prompts)
    assert all(prompt.tokens + prompt.limit == CONTEXT for prompt in prompts)


def test_packing_a_cache_that_is_smaller_than_the_context_limits_the_output(tmp_path):
    small, trace = replace(TINY, memory=Memory(2, 16)), {"seconds": [0.0, 1.0], "prompt_tokens": [10, 20]}
    load = write_trace(tmp_path, "csv", {**trace, "output_tokens": [20, 20]})
    requests = packing_command.requests_of(load, small, CONTEXT, 0)
    assert requests.left_out == 1 and requests.prompts[0].limit == 22
    assert packing_command.compared(small, CONTEXT, load, None, 0).row_count == len(PACKING_POLICIES)


def test_packing_all_policies_are_compared_or_one_is_shown_with_the_plans_parameters():
    def shown_of(plan, policy: str | None, load: str = "poisson:100:3") -> dict[str, list[str]]:
        table = packing_command.compared(plan, CONTEXT, load, policy, 0)
        return {heading: list(column.cells) for heading, column in zip(HEADINGS, table.columns, strict=True)}

    whole, alone = shown_of(TINY, None), shown_of(TINY, "s3")
    assert whole[HEADINGS[0]] == list(PACKING_POLICIES) and alone[HEADINGS[0]] == ["s3"]
    assert len(set(whole["requests"])) == 1 and float(whole["requests"][0]) == pytest.approx(300, rel=0.2)
    patient, not_at_all = (
        shown_of(replace(TINY, patience=value), "default", "poisson:200:3")["mean s"][0] for value in (4.0, 0.0)
    )
    assert patient != not_at_all and np.isfinite(float(patient))
