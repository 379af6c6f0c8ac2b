"""Loads that `pliant simulate packing` takes, as prompts, and what its table compares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas
import pytest

from pliant.cli.packing.simulate import COLUMNS, HEADINGS, compared, requests_of
from pliant.errors import InputError
from pliant.packing.scheduling.policy import POLICIES
from pliant.packing.scheduling.request import Memory
from pliant.registry.names import PACKING_GENERATOR, PACKING_PREFIX
from tests.fixtures.commands import KINDS, columns, refused, shown, write_trace
from tests.fixtures.packing import in_process
from tests.fixtures.packing.scenarios import CONTEXT, packing

COMMAND = ["simulate", "packing", "--load"]
TINY = packing()


def test_a_poisson_load_draws_observed_requests_with_their_own_forecasts():
    prompts = requests_of("poisson:100:5", TINY, CONTEXT, 0).prompts
    assert len(prompts) == pytest.approx(500, rel=0.15) and max(prompt.arrival for prompt in prompts) < 5.0
    observed = {
        (int(p), int(o)): tuple(f.tolist())
        for p, o, f in zip(TINY.prompt_tokens, TINY.output_tokens, TINY.forecasts, strict=True)
    }
    assert all(observed[prompt.tokens, prompt.exact] == prompt.forecast for prompt in prompts)
    assert all(prompt.tokens + prompt.limit == CONTEXT for prompt in prompts)


def _file(folder, rows):
    path = folder / "trace.parquet"
    pandas.DataFrame(rows, columns=["seconds", *COLUMNS]).to_parquet(path)
    return f"trace:{path}"


def test_a_cache_that_is_smaller_than_the_context_limits_the_output(tmp_path):
    small = replace(TINY, memory=Memory(2, 16))
    requests = requests_of(_file(tmp_path, [(0.0, 10, 20), (1.0, 20, 20)]), small, CONTEXT, 0)
    assert requests.left_out == 1 and requests.prompts[0].limit == 22
    assert compared(small, CONTEXT, _file(tmp_path, [(0.0, 10, 20)]), None, 0).row_count == len(POLICIES)


@pytest.mark.parametrize("rows", [[], [(0.0, 0, 5)], [(0.0, 5, float("nan"))], [(0.0, CONTEXT, 5)]])
def test_a_recorded_load_without_usable_requests_is_refused(tmp_path, rows):
    with pytest.raises(InputError, match="load"):
        requests_of(_file(tmp_path, rows), TINY, CONTEXT, 0)


def test_the_table_compares_all_policies_or_shows_the_one_asked_for():
    whole, alone = (compared(TINY, CONTEXT, "poisson:100:3", policy, 0) for policy in (None, "s3"))
    assert list(whole.columns[0].cells) == list(POLICIES) and len(whole.columns) == len(HEADINGS)
    assert list(alone.columns[0].cells) == ["s3"]
    counts = list(whole.columns[HEADINGS.index("requests")].cells)
    assert len(set(counts)) == 1 and float(counts[0]) == pytest.approx(300, rel=0.2)


def test_the_plans_parameters_reach_the_scheduler():
    patient, not_at_all = (
        compared(replace(TINY, patience=value), CONTEXT, "poisson:200:3", "default", 0) for value in (4.0, 0.0)
    )
    mean = HEADINGS.index("mean s")
    assert next(iter(patient.columns[mean].cells)) != next(iter(not_at_all.columns[mean].cells))
    assert np.isfinite(float(next(iter(patient.columns[mean].cells))))


@pytest.fixture
def champion(registry):
    digest = registry.publish(PACKING_GENERATOR + "tiny", in_process.generator(name="tiny", context=CONTEXT))
    registry.publish(PACKING_PREFIX + "tiny", replace(TINY, generator=digest), tags={"pliant.generator": "1"})


@pytest.mark.parametrize("kind", KINDS)
def test_every_request_of_a_recorded_trace_is_simulated_with_its_lengths(kind, champion, tmp_path, capsys):
    trace = {"seconds": [907.0, 905.0, 906.0], "prompt_tokens": [30, 20, CONTEXT], "output_tokens": [50, 40, 1]}
    text = shown([*COMMAND, write_trace(tmp_path, kind, trace), "--policy", "default"], capsys)
    assert "(1 requests too long, left out)" in " ".join(text.split())
    table = columns(text)
    seconds = 2 / float(table["requests/s"][0])
    assert table["requests"] == ["2"]
    assert float(table["tokens/s"][0]) * seconds == pytest.approx(50 + 40, rel=0.05)


@pytest.mark.parametrize(
    ("outputs", "sentence"),
    [({}, "it has no output_tokens"), ({"output_tokens": [0]}, "prompts and outputs of at least 1 token")],
)
def test_a_trace_without_lengths_is_refused_with_a_sentence(outputs, sentence, champion, tmp_path, capsys):
    load = write_trace(tmp_path, "csv", {"seconds": [1.0], "prompt_tokens": [5], **outputs})
    assert sentence in refused([*COMMAND, load], capsys)
