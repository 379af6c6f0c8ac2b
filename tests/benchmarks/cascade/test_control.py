"""The control logic of a cascade, timed step by step on tiny classifiers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.cascade.control import LIMIT, ROUNDS, TOKENS, Control, long_way, measure, texts
from benchmarks.cascade.study import Latencies, Study, held_out
from pliant.cascade.artifact import Pruning
from pliant.models.text import Reader
from profiling.cascade.outputs import OutputsConfig, run_all
from tests.fixtures.cascade.artifacts import CLASSES, some_texts
from tests.fixtures.cascade.classifiers import tiny_classifier
from tests.fixtures.cascade.scenarios import tables
from training.data import Split
from training.text_data import assemble

PRUNINGS = (Pruning("mean", 0.5), Pruning("mass", 0.9))
TEXTS = 160


@pytest.fixture(scope="module")
def study() -> Study:
    """Two tiny classifiers of random weights; the labels are those that the larger one mostly knows."""
    classifiers = tiny_classifier("small"), tiny_classifier("large", "roberta", seed=1, max_length=30, vocabulary=40)
    things, rows = some_texts(count=TEXTS), np.arange(TEXTS)
    split = Split(rows[:0], rows[: TEXTS // 2], rows[TEXTS // 2 :])
    data = assemble("things", [text for text, _ in things.rows], None, things.labels.astype(np.int64), CLASSES, split)
    config = OutputsConfig(PRUNINGS, batch=16)
    outputs = run_all(classifiers, data, held_out(data), config, digests=["sha256:a", "sha256:b"])
    known_R = outputs.levels[1].logits.argmax(axis=1)
    labels = np.where(np.arange(len(known_R)) % 10 == 0, outputs.labels, known_R).astype(np.float64)
    return Study(data, classifiers, replace(outputs, labels=labels))


@pytest.fixture(scope="module")
def latencies() -> Latencies:
    return Latencies(tuple(tables(2)), tuple(tables(2)), "cpu")


@pytest.fixture(scope="module")
def control(study, latencies) -> Control:
    return measure(study, latencies)


def test_every_step_takes_some_time_and_the_total_is_about_their_sum(control):
    others = control.routing, control.ensemble, control.dispatch
    assert control.importance >= 0
    assert min(others) > 1e-6
    assert control.total >= control.importance + max(others)
    assert control.total - control.importance == pytest.approx(sum(others), rel=0.5)


def test_the_table_shows_every_step_in_microseconds(control):
    assert [name for name, _ in control.table()] == ["importance", "routing", "ensemble", "dispatch", "total"]
    assert float(dict(control.table())["routing"]) == pytest.approx(1e6 * control.routing, abs=0.5)


@pytest.mark.parametrize(("total", "verdict"), [(LIMIT, "met"), (1.01 * LIMIT, "missed"), (float("nan"), "missed")])
def test_the_target_is_a_millisecond(total, verdict):
    assert Control(0.0, 0.0, 0.0, 0.0, total).target().verdict == verdict


def test_the_texts_that_are_timed_have_32_tokens_and_never_run_out(study):
    reader, timed = Reader(study.classifiers[0].tokenizer, TOKENS), list(texts(study))
    assert len(timed) == ROUNDS
    assert {len(reader.read(text).ids) for text in timed} == {TOKENS}


def test_every_request_goes_the_long_way(study, latencies):
    (candidate,) = long_way(study, latencies).candidates
    assert candidate.levels == (0, 1)
    assert candidate.gates[0].pruning.rule == "mass"
    assert 0 < candidate.gates[0].weight < 1
