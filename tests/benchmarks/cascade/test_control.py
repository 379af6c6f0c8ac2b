"""What is timed on real models, on tiny ones: control logic part by part, and every method one request at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.cascade import alone
from benchmarks.cascade import control as cascade_control
from benchmarks.cascade.control import LIMIT, TOKENS, Control
from benchmarks.cascade.study import Latencies, Study, held_out
from pliant.cascade.artifact import Pruning
from pliant.models.text import Reader
from profiling.cascade.outputs import OutputsConfig, run_all
from tests.fixtures.cascade.artifacts import CLASSES, some_texts
from tests.fixtures.cascade.classifiers import tiny_classifier
from tests.fixtures.cascade.worlds import tables
from training.data import Split
from training.text_data import assemble

PRUNINGS = (Pruning("mean", 0.5), Pruning("mass", 0.9))
TEXTS = 160


@pytest.fixture(scope="module")
def study() -> Study:
    """Two tiny classifiers of random weights; nothing is held back for training, as there is none."""
    made = tiny_classifier("small", seed=0), tiny_classifier("large", "roberta", seed=1, max_length=30, vocabulary=40)
    texts, rows = some_texts(count=TEXTS), np.arange(TEXTS)
    first = [one for one, _ in texts.rows]
    split = Split(rows[:0], rows[: TEXTS // 2], rows[TEXTS // 2 :])
    data = assemble("things", first, None, texts.labels.astype(np.int64), CLASSES, split)
    outputs = run_all(made, data, held_out(data), OutputsConfig(PRUNINGS, batch=16), digests=["sha256:a", "sha256:b"])
    return Study(data, made, _taught(outputs))


def _taught(outputs):
    """Labels that the larger model mostly knows, so that there is something to plan."""
    label_R = outputs.levels[1].logits.argmax(axis=1)
    return replace(outputs, labels=np.where(np.arange(TEXTS) % 10 == 0, outputs.labels, label_R).astype(np.float64))


@pytest.fixture(scope="module")
def latencies() -> Latencies:
    return Latencies(tuple(tables(2)), tuple(tables(2)), "cpu")


@pytest.fixture(scope="module")
def control(study, latencies) -> Control:
    return cascade_control.measure(study, latencies)


def test_every_part_of_the_control_logic_takes_some_time(control):
    assert control.importance >= 0
    assert min(control.routing, control.ensemble, control.dispatch) > 1e-6
    assert max(control.routing, control.ensemble, control.dispatch) < control.total


def test_the_total_is_no_less_than_its_largest_part_and_about_their_sum(control):
    others = control.routing + control.ensemble + control.dispatch
    assert control.total >= control.importance + max(control.routing, control.ensemble, control.dispatch)
    assert control.total - control.importance == pytest.approx(others, rel=0.5)


def test_the_rows_show_every_part_in_microseconds(control):
    assert [name for name, _ in control.rows()] == ["importance", "routing", "ensemble", "dispatch", "total"]
    assert float(dict(control.rows())["routing"]) == pytest.approx(1e6 * control.routing, abs=0.5)


@pytest.mark.parametrize(("total", "verdict"), [(LIMIT, "met"), (1.01 * LIMIT, "missed"), (float("nan"), "missed")])
def test_the_bar_is_a_millisecond(total, verdict):
    assert Control(0.0, 0.0, 0.0, 0.0, total).bar().verdict == verdict


def test_the_texts_that_are_timed_have_32_tokens_and_never_run_out(study):
    texts = list(cascade_control._texts(study))
    reader = Reader(study.classifiers[0].tokenizer, TOKENS)
    assert len(texts) == cascade_control.ROUNDS
    assert {len(reader.read(text).ids) for text in texts} == {TOKENS}


def test_every_request_goes_the_long_way(study, latencies):
    (candidate,) = cascade_control._long_way(study, latencies).candidates
    assert candidate.levels == (0, 1)
    assert candidate.gates[0].pruning.rule == "mass"
    assert 0 < candidate.gates[0].weight < 1


def test_every_method_runs_the_same_texts_and_its_figures_are_means_over_them(study, latencies):
    steps: list[tuple[int, int]] = []
    found = alone.measure(study, latencies, 24, lambda done, of: steps.append((done, of)))
    assert found.texts == 24
    assert steps == [(done, 24) for done in range(1, 25)]
    assert {"default", "single", "voting", "large"} <= set(found.seconds)
    assert set(found.seconds) == set(found.accuracy) == set(found.early)
    assert min(found.seconds.values()) > 0
    for share in (*found.accuracy.values(), *found.early.values()):
        assert share * 24 == pytest.approx(round(share * 24))


def test_all_models_together_answer_nothing_early_and_one_alone_everything(study, latencies):
    found = alone.measure(study, latencies, 24)
    assert (found.early["voting"], found.early["large"]) == (0.0, 1.0)
    assert found.ratio("voting", "large") == found.seconds["voting"] / found.seconds["large"]


def test_accuracies_by_the_clock_are_those_of_the_saved_outputs(study, latencies):
    """All of the judging half, so that the texts are known."""
    found = alone.measure(study, latencies, TEXTS // 2)
    _, second = alone.halves(TEXTS, 0)
    right_R = study.outputs.levels[1].logits.argmax(axis=1) == study.outputs.labels
    assert found.accuracy["large"] == pytest.approx(right_R[second].mean())


def test_the_equal_candidate_is_there_exactly_where_a_published_one_is(study, latencies):
    with_it = alone.measure(study, latencies, 2)
    slow = Latencies((tables(2)[0], tables(2)[0]), latencies.importance, "cpu")  # two levels take longer than the large
    without = alone.measure(study, slow, 2)
    assert {"tabi", "equal"} <= set(with_it.seconds)
    assert not {"tabi", "equal"} & set(without.seconds)
