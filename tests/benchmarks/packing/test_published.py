"""S3's published tables: classes as accurate as published, lengths from words, a table near the published one."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.packing import published
from benchmarks.packing.published import (
    ACCURACY,
    HEADINGS,
    PIPELINE_HEADINGS,
    POLICIES,
    STAGES,
    TABLE,
    VARIANT_HEADINGS,
    VARIANTS,
    WITHIN,
    Cell,
    Found,
    Lengths,
    classes,
    lengths,
    measure,
    missing,
    outputs_alone,
    prompts,
    run,
)
from pliant.errors import InputError
from pliant.packing.engine.hardware import GPT_J_6B, LLAMA_13B

needs_data = pytest.mark.skipif(bool(missing()), reason=missing() or "-")


def some(count: int) -> Lengths:
    rng = np.random.default_rng(0)
    return Lengths(rng.integers(5, 40, count), rng.integers(1, 300, count))


def test_the_predictor_is_right_as_often_as_published_and_else_says_a_neighbour():
    outputs = np.random.default_rng(0).integers(1, 2049, 50_000)
    right = -(-outputs * 10 // 2048)
    said = classes(outputs)
    assert np.mean(said == right) == pytest.approx(ACCURACY, abs=0.002)
    assert set(np.abs(said - right).tolist()) == {0, 1}
    assert said.min() == 1 and said.max() == 10


def test_a_right_class_reserves_at_least_the_output():
    told = some(500)
    reserved = np.array([one.bucket for one in prompts(told)])
    right = classes(told.outputs) == -(-told.outputs * 10 // 2048)
    assert np.all(reserved[right] >= told.outputs[right])
    assert np.all(reserved[right] - told.outputs[right] < 206)


def test_without_prompts_the_maximum_is_still_the_whole_context():
    assert {one.tokens + one.limit for one in prompts(outputs_alone(some(20)))} == {2048}


def test_the_mean_batch_counts_the_last_iterations_too():
    """Three outputs of one token and one of four: seven tokens in four iterations."""
    told = Lengths(np.ones(4, np.int64), np.array([1, 1, 1, 4]))
    assert run(GPT_J_6B, "oracle", told).batch == pytest.approx(7 / 4)


def test_memory_bounds_the_batch_of_equal_outputs():
    """32 sequences of the context fit beside LLaMA-13B: 64 outputs of 99 tokens are two full batches in turn."""
    told = Lengths(np.ones(64, np.int64), np.full(64, 99))
    cell = run(LLAMA_13B, "orca", told, 31.6)
    assert cell.batch == pytest.approx(32.0)
    assert cell.ratio == pytest.approx(32 / 31.6)
    assert run(LLAMA_13B, "oracle", told).batch == pytest.approx(64.0)


def test_words_are_counted_over_instruction_and_input(tmp_path):
    pandas = pytest.importorskip("pandas")
    table = {"instruction": ["say it", "go"], "input": ["", "on  and\non"], "output": ["", "one two three"]}
    pandas.DataFrame(table).to_parquet(tmp_path / "rows.parquet")
    found = lengths(tmp_path / "rows.parquet")
    assert found.prompts.tolist() == [3, 5] and found.outputs.tolist() == [1, 4]


def test_a_missing_sample_is_named(tmp_path):
    with pytest.raises(InputError, match=r"rows\.parquet"):
        lengths(tmp_path / "rows.parquet")


def cell(policy: str, batch: float, tokens: float = 1.0, devices: int = 1) -> Cell:
    return Cell("a model", policy, 100.0, batch, tokens, 0, devices)


def test_the_worst_cell_of_either_side_is_the_bar():
    pipeline = (cell("s3", 1.0, 30.0, STAGES[0]), cell("orca", 1.0, 20.0, STAGES[-1]))
    found = Found((cell("orca", 104.0), cell("s3", 87.0)), pipeline, {})
    assert found.worst == pytest.approx(0.13) and found.match == pytest.approx(1.5)
    assert [bar.met for bar in found.targets()] == [False, True]


def test_every_table_has_its_headings():
    pipeline = (cell("s3", 1.0, 30.0, STAGES[0]), cell("orca", 1.0, 20.0, STAGES[-1]))
    found = Found((cell("orca", 104.0),), pipeline, {VARIANTS[0]: (cell("orca", 90.0),)})
    assert [len(row) for row in found.table()] == [len(HEADINGS)]
    assert [len(row) for row in found.stages()] == [len(PIPELINE_HEADINGS)] * 2
    assert [len(row) for row in found.changes()] == [len(VARIANT_HEADINGS)]
    assert found.changes()[0][-1] == "0.900" and found.plain()["fitted"] == 0


@needs_data
@pytest.mark.slow
def test_a_line_of_the_published_table_is_simulated(monkeypatch):
    """All four are the benchmark's bar."""
    monkeypatch.setattr(published, "TABLE", {GPT_J_6B: TABLE[GPT_J_6B]})
    monkeypatch.setattr(published, "STAGES", (STAGES[0], STAGES[-1]))
    told: list[tuple[int, int]] = []
    found = measure(progress=lambda done, of: told.append((done, of)))
    assert found.worst <= WITHIN and found.match > 1
    assert len(found.cells) == len(POLICIES) and not found.variants
    assert told[-1][0] == told[-1][1] and told == sorted(told)


@needs_data
def test_the_longest_output_bounds_the_oracle_of_the_smallest_model():
    """GPT-J's Oracle: no run ends before the longest output does, so the mean is all tokens over that length."""
    told = outputs_alone(lengths())
    found = run(GPT_J_6B, "oracle", told, published.TABLE[GPT_J_6B][2])
    assert found.batch == pytest.approx(told.outputs.sum() / told.outputs.max(), rel=0.01)
