"""Loads that `pliant simulate packing` takes, as prompts, and what its table compares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas
import pytest

from benchmarks.packing.traces import missing
from cli.packing.simulate import COLUMNS, HEADINGS, compared, requests, simulate_load
from pliant.errors import InputError, RegistryError
from pliant.packing.scheduling.policy import POLICIES
from pliant.packing.scheduling.request import Memory
from tests.fixtures.packing.worlds import CONTEXT, packing

needs_data = pytest.mark.skipif(bool(missing()), reason=missing() or "-")
ONE = packing()


def test_a_poisson_load_draws_observed_requests_with_their_own_forecasts():
    made = requests("poisson:100:5", ONE, CONTEXT, 0).prompts
    assert len(made) == pytest.approx(500, rel=0.15) and max(one.arrival for one in made) < 5.0
    observed = {
        (int(p), int(o)): tuple(f.tolist())
        for p, o, f in zip(ONE.prompt_tokens, ONE.output_tokens, ONE.forecasts, strict=True)
    }
    assert all(observed[one.tokens, one.exact] == one.forecast for one in made)
    assert all(one.tokens + one.limit == CONTEXT for one in made)


def test_the_reference_load_is_that_of_the_plan():
    made = requests("reference", ONE, CONTEXT, 0).prompts
    assert len(made) > 100 and made == requests("reference", ONE, CONTEXT, 0).prompts


def _file(folder, rows):
    path = folder / "trace.parquet"
    pandas.DataFrame(rows, columns=["seconds", *COLUMNS]).to_parquet(path)
    return f"trace:{path}"


def test_a_recorded_load_comes_in_order_and_without_what_the_model_cannot_hold(tmp_path):
    load = _file(tmp_path, [(7.0, 10, 20), (5.0, 30, 40), (6.0, CONTEXT, 1)])
    found = requests(load, ONE, CONTEXT, 0)
    assert found.left_out == 1 and [(p.arrival, p.tokens, p.exact) for p in found.prompts] == [(0, 30, 40), (2, 10, 20)]


def test_a_cache_that_is_smaller_than_the_context_limits_the_output(tmp_path):
    small = replace(ONE, memory=Memory(2, 16))
    found = requests(_file(tmp_path, [(0.0, 10, 20), (1.0, 20, 20)]), small, CONTEXT, 0)
    assert found.left_out == 1 and found.prompts[0].limit == 22
    assert compared(small, CONTEXT, _file(tmp_path, [(0.0, 10, 20)]), None, 0).row_count == len(POLICIES)


@pytest.mark.parametrize("rows", [[], [(0.0, 0, 5)], [(0.0, 5, float("nan"))], [(0.0, CONTEXT, 5)]])
def test_a_recorded_load_without_usable_requests_is_refused(tmp_path, rows):
    with pytest.raises(InputError, match="load"):
        requests(_file(tmp_path, rows), ONE, CONTEXT, 0)


def test_a_file_without_the_columns_is_refused_with_their_names(tmp_path):
    pandas.DataFrame({"count": [1]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(InputError, match="seconds, prompt_tokens, output_tokens"):
        requests(f"trace:{tmp_path / 't.parquet'}", ONE, CONTEXT, 0)


def test_the_old_word_for_a_recorded_load_is_taken_with_a_warning(tmp_path, capsys):
    load = _file(tmp_path, [(0.0, 10, 20)])
    assert requests(load.removeprefix("trace:"), ONE, CONTEXT, 0) == requests(load, ONE, CONTEXT, 0)
    assert "warning: the load FILE goes with the next release: use trace:FILE" in capsys.readouterr().err


BAD = ("", "5", "1:2:3", "x:y", "nan:1", "-1:1", "inf:1", "1e30:1", "0:5", "5:0")


@pytest.mark.parametrize("load", [*(f"poisson:{b}" for b in BAD), "azure:x", "azure:1:2", "nonsense", "sharegpt"])
def test_a_load_that_is_none_is_refused(load):
    with pytest.raises(InputError, match="load"):
        requests(load, ONE, CONTEXT, 0)


@needs_data
@pytest.mark.parametrize("load", ["azure:60", "sharegpt:2:60"])
def test_a_trace_brings_its_lengths_and_forecasts_by_the_prompts_length(load):
    large = replace(ONE, memory=Memory(4000, 16, 0, 4096, 256))
    found = requests(load, large, 4096, 0)
    assert len(found.prompts) > 20 and found.left_out > 0
    assert all(one.tokens + one.exact <= 4096 for one in found.prompts)
    assert len({one.forecast for one in found.prompts}) > 5


def test_the_table_compares_all_policies_or_shows_the_one_asked_for():
    whole, alone = (compared(ONE, CONTEXT, "poisson:100:3", policy, 0) for policy in (None, "s3"))
    assert list(whole.columns[0].cells) == list(POLICIES) and len(whole.columns) == len(HEADINGS)
    assert list(alone.columns[0].cells) == ["s3"]
    asked = list(whole.columns[HEADINGS.index("asked")].cells)
    assert len(set(asked)) == 1 and float(asked[0]) == pytest.approx(300, rel=0.2)


def test_an_unknown_policy_is_refused():
    with pytest.raises(InputError, match="policy"):
        compared(ONE, CONTEXT, "reference", "clairvoyant", 0)


def test_without_a_champion_the_command_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PLIANT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    with pytest.raises(RegistryError, match="pliant train packing"):
        simulate_load("reference", None, 0)


def test_the_plans_parameters_reach_the_scheduler():
    patient, not_at_all = (
        compared(replace(ONE, patience=value), CONTEXT, "poisson:200:3", "default", 0) for value in (4.0, 0.0)
    )
    mean = HEADINGS.index("mean s")
    assert next(iter(patient.columns[mean].cells)) != next(iter(not_at_all.columns[mean].cells))
    assert np.isfinite(float(next(iter(patient.columns[mean].cells))))
