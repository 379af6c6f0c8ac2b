"""Outputs of a whole cascade: every row is what its text gives alone, whole and shortened."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from pliant.cascade.artifact import Pruning
from pliant.cascade.bag import BagModel
from pliant.cascade.prune import kept_words
from pliant.cascade.runtime import CascadeRuntime, Part
from pliant.cascade.trunk import Trunk
from pliant.errors import InputError
from pliant.models.text import Reader, shorten
from pliant.profiling.cascade.latency import LatencyConfig, profile, profile_bag
from pliant.profiling.cascade.outputs import OutputsConfig, run_all
from pliant.profiling.timer import TimerConfig
from tests.fixtures.cascade.artifacts import CLASSES, Texts
from tests.fixtures.cascade.classifiers import TEXTS, tiny_bag, tiny_classifier, tiny_exit

FAST = LatencyConfig(lengths=(4, 8, 30), batches=(1, 3), timer=TimerConfig(warmup=1, least=1, most=1))

MEAN, LESS, NONE = Pruning("mean", 0.9), Pruning("mean", 0.7), Pruning("mean", 0.0)
CONFIG = OutputsConfig((MEAN, LESS, NONE), batch=4)
LEVELS = (
    tiny_classifier("small", seed=1),
    tiny_classifier("middle", "electra", seed=2, vocabulary=50),  # another tokenizer
    tiny_classifier("large", "distilbert", seed=3, max_length=16),
)


LABELS = np.arange(21) % 3
SINGLE = Texts(tuple((" ".join(text.split()[: 3 + i % 7]), None) for i, text in enumerate(TEXTS)), LABELS, CLASSES)
PAIRS = Texts(tuple((one, TEXTS[-i]) for i, one in enumerate(TEXTS)), LABELS, CLASSES)
INDEX = np.array([4, 0, 20, 4, 7, 11, 2])  # one row twice


@cache
def loaded(level: int) -> tuple[Reader, CascadeRuntime]:
    return Reader(LEVELS[level].tokenizer, LEVELS[level].max_length), CascadeRuntime({0: LEVELS[level]})


def alone(level: int, text, importance: bool = False):
    reader, runtime = loaded(level)
    reading = reader.read(*text)
    return reading, runtime.run(0, [(reading.ids, reading.types)], importance)


@pytest.fixture(scope="module", params=[SINGLE, PAIRS], ids=["single", "pair"])
def profiled(request):
    return request.param, run_all(LEVELS, request.param, INDEX, CONFIG, digests=("a", "b", "c"))


def test_every_level_has_the_logits_and_length_of_each_text_alone_in_the_order_asked(profiled):
    data, outputs = profiled
    for number, level in enumerate(outputs.levels):
        for row, text in enumerate(data.texts(INDEX)):
            reading, run = alone(number, text)
            np.testing.assert_allclose(level.logits[row], run.logits[0], atol=1e-5)
            assert level.length[row] == len(reading.ids)


def test_every_later_level_reads_what_each_pruning_by_an_earlier_one_leaves(profiled):
    data, outputs = profiled
    for pruned in outputs.pruned:
        for row, text in enumerate(data.texts(INDEX)):
            reading, run = alone(pruned.pruner, text, importance=True)
            kept_W = kept_words(run.importance[0], reading.words, pruned.pruning)
            reread, expected = alone(pruned.reader, shorten(*text, reading.spans, kept_W))
            np.testing.assert_allclose(pruned.logits[row], expected.logits[0], atol=1e-5)
            assert pruned.length[row] == len(reread.ids)
            assert pruned.kept[row] == pytest.approx(kept_W.mean())
    assert any((pruned.kept < 1).any() for pruned in outputs.pruned)  # or nothing was tested


def test_every_pair_of_levels_has_every_pruning_and_what_describes_the_data_is_kept(profiled):
    data, outputs = profiled
    seen = {(pruned.pruner, pruned.reader, pruned.pruning) for pruned in outputs.pruned}
    assert len(outputs.pruned) == len(seen) == 3 * 3
    assert {(pruner, reader) for pruner, reader, _ in seen} == {(0, 1), (0, 2), (1, 2)}
    assert (outputs.names, outputs.classifiers) == (("small", "middle", "large"), ("a", "b", "c"))
    assert outputs.labels.tolist() == data.labels[INDEX].tolist()
    assert (outputs.task, outputs.classes, outputs.data) == ("things", CLASSES, "sha256:things")


def test_a_pruning_that_leaves_everything_has_the_very_logits_of_the_whole_texts(profiled):
    _, outputs = profiled
    for pruned in outputs.pruned:
        if pruned.pruning == NONE:
            np.testing.assert_array_equal(pruned.logits, outputs.levels[pruned.reader].logits)
            assert pruned.kept.tolist() == [1.0] * len(INDEX)


def test_bags_and_exits_say_what_they_say_of_each_text_alone_and_are_never_pruned_by():
    small, large = LEVELS[0], LEVELS[1]
    levels = (tiny_bag(large), replace(tiny_exit(), large="d"), small, large)
    outputs = run_all(levels, SINGLE, INDEX, CONFIG, digests=("a", "b", "c", "d"))
    assert {(pruned.pruner, pruned.reader) for pruned in outputs.pruned} == {(2, 3)}
    reader, runtime = Reader(large.tokenizer, large.max_length), CascadeRuntime({0: Part(large, exit=levels[1])})
    for row, text in enumerate(SINGLE.texts(INDEX)):
        reading = reader.read(*text)
        said = [
            BagModel(levels[0]).logits(reading.ids, reading.types),
            *runtime.run(0, [(reading.ids, reading.types)]).logits,
        ]
        for level, logits in zip(outputs.levels, said, strict=False):
            np.testing.assert_allclose(level.logits[row], logits, atol=1e-5)
            assert level.length[row] == len(reading.ids)
    np.testing.assert_allclose(
        outputs.levels[3].logits, run_all((large,), SINGLE, INDEX, CONFIG).levels[0].logits, atol=1e-5
    )
    with pytest.raises(InputError, match="levels is without the classifier d, but must be those that exits are on"):
        run_all(levels[:3], SINGLE, INDEX, CONFIG, digests=("a", "b", "c"))


def test_a_bag_is_profiled_for_one_text_at_every_length():
    table = profile_bag(tiny_bag(LEVELS[0]), FAST)
    assert (table.settings, table.batches) == ((4, 8, LEVELS[0].max_length), (1,))
    assert np.all(np.diff(np.array(table.seconds)[:, 0]) >= 0)


def test_no_texts_no_levels_and_other_classes_are_refused():
    with pytest.raises(InputError, match="levels or texts is none"):
        run_all(LEVELS, SINGLE, INDEX[:0], CONFIG)
    with pytest.raises(InputError, match="levels or texts is none"):
        run_all((), SINGLE, INDEX, CONFIG)
    with pytest.raises(InputError, match="classes of two is 2, but must be the 3 of things"):
        run_all((tiny_classifier("two", classes=("x", "y")),), SINGLE, INDEX, CONFIG)


def test_a_table_rises_with_length_and_batch():
    seconds = np.array(profile(tiny_classifier(), FAST).seconds)
    assert np.all(np.diff(seconds, axis=0) >= 0)
    assert np.all(np.diff(seconds, axis=1) >= 0)


def test_each_timed_launch_behind_an_exit_goes_on_from_what_the_exit_left(monkeypatch):
    resumed, launches, rest, run = [], [], Trunk.rest, CascadeRuntime.run
    monkeypatch.setattr(Trunk, "rest", lambda *given: resumed.append(given) or rest(*given))
    monkeypatch.setattr(CascadeRuntime, "run", lambda *given: launches.append(given) or run(*given))
    classifier = tiny_classifier()
    trials = 1  # of the cut, when it is loaded
    assert profile(Part(classifier, 1), FAST).settings == (4, 8, classifier.max_length)
    assert len(resumed) == len(launches) + trials > trials
