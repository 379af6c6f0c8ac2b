"""Bags and heads learn what a known large model says, on texts of a few tokens and features of a few numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from pliant.cascade.bag import BagModel, grams
from pliant.cascade.exit import exit_logits
from pliant.errors import InputError
from pliant.models.artifact import Classifier
from pliant.training.cascade.distil import DistilConfig, exit_layers, train_bag, train_exit

START, END = 1, 2  # marks around every text
WORDS = 30
LARGE = Classifier("large", "colours", ("red", "green", "blue"), "{}", "{}", 32, "fitted", {})
REGRESSOR = replace(LARGE, classes=())
CONFIG = DistilConfig(batch=32, width=8, hidden=16, bag_epochs=12, bag_rate=0.05, exit_epochs=12, exit_rate=0.01)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def texts(count=400, seed=0):
    """Return texts of 3 to 8 words between marks, and how often each word is in them [R, words]."""
    rng = np.random.default_rng(seed)
    words = [rng.integers(3, 3 + WORDS, rng.integers(3, 9)) for _ in range(count)]
    readings = [(np.array([START, *each, END], np.int32), np.zeros(len(each) + 2, np.int8)) for each in words]
    return readings, np.stack([np.bincount(each - 3, minlength=WORDS) / len(each) for each in words])


def teacher(share_RW, outputs=3):
    return (share_RW @ np.random.default_rng(9).normal(size=(WORDS, outputs)) * 8).astype(np.float32)


def unknown(count=400):
    return np.full(count, np.nan)


TABLE = np.random.default_rng(5).normal(size=(3 + WORDS, 16)).astype(np.float32)
"""What a large model says of tokens, at random."""


def bag_of(readings, target_RK, label_R=None, config=CONFIG, large=LARGE, table=TABLE, **options):
    label_R = unknown(len(readings)) if label_R is None else label_R
    return train_bag(config, large, "digest", "bag", "texts", readings, target_RK, label_R, table, **options)


def features(count=400, seed=0):
    """Return features [R, 8] of quite different scales, and logits that are not linear in them."""
    rng = np.random.default_rng(seed)
    plain_RD = rng.normal(size=(count, 8))
    logit_RK = 3 * np.stack([np.abs(plain_RD[:, 0]), plain_RD[:, 1], plain_RD[:, 2]], axis=1)
    return (plain_RD * 2.0 ** np.arange(8) + 100).astype(np.float32), logit_RK.astype(np.float32)


def exit_of(feature_RD, target_RK, label_R=None, config=CONFIG, large=LARGE):
    label_R = unknown(len(feature_RD)) if label_R is None else label_R
    return train_exit(config, large, "digest", "exit1", 1, "texts", feature_RD, target_RK, label_R)


def agreement(output_RK, target_RK):
    return np.mean(output_RK.argmax(1) == target_RK.argmax(1))


def test_a_bag_learns_the_large_model_s_answers_without_any_label():
    (readings, share_RW), (others, other_RW) = texts(), texts(seed=1)
    bag = bag_of(readings, teacher(share_RW))
    assert agreement(BagModel(bag).logits_of(others), teacher(other_RW)) > 0.8
    assert (bag.task, bag.classes, bag.large, bag.data) == ("colours", LARGE.classes, "digest", "texts")


def test_a_bag_of_a_regressor_gives_its_values():
    (readings, share_RW), (others, other_RW) = texts(), texts(seed=1)
    bag = bag_of(readings, 50 + 10 * teacher(share_RW, 1), large=REGRESSOR)
    target_RK = 50 + 10 * teacher(other_RW, 1)
    error_RK = BagModel(bag).logits_of(others) - target_RK
    assert np.mean(error_RK**2) < 0.3 * np.var(target_RK)


def test_a_bag_learns_from_known_labels_where_the_large_model_says_nothing():
    readings, share_RW = texts()
    label_R, nothing_RK = teacher(share_RW).argmax(1).astype(float), np.zeros((400, 3), np.float32)
    label_R[::2] = np.nan
    outputs = [BagModel(bag_of(readings, nothing_RK, labels)).logits_of(readings) for labels in (None, label_R)]
    shares = [agreement(output_RK, teacher(share_RW)) for output_RK in outputs]
    assert shares[0] < 0.5 and shares[1] > 0.7


def test_a_bag_knows_the_n_grams_of_most_texts_except_those_that_are_alike_in_all():
    sentences = [[START, 5, 6, END], [START, 5, 7, END], [START, 5, 5, 6, END]]
    readings = [(np.array(ids, np.int32), np.zeros(len(ids), np.int8)) for ids in sentences]
    count_of = [dict(zip(*np.unique(grams(*each), return_counts=True), strict=True)) for each in readings]
    every = sorted(set().union(*count_of))
    alike = [gram for gram in every if len({counts.get(gram, 0) for counts in count_of}) == 1]
    common = sorted(set(every) - set(alike), key=lambda gram: (-sum(gram in counts for counts in count_of), gram))
    assert {START, END} < set(alike) and common[:2] == [5, 6]
    for most in (1, 3, 5, 100):
        bag = bag_of(readings, np.eye(3, dtype=np.float32), config=replace(CONFIG, most=most))
        assert bag.grams[bag.seen].tolist() == sorted(common[:most]) and bag.table.shape == (len(bag.grams), 8)
        guessed = sorted({*range(len(TABLE))} - {START, END, *common[:most]})
        assert bag.grams[~bag.seen].tolist() == guessed[:most] and (np.diff(bag.grams) > 0).all()


def test_a_token_that_no_text_had_is_taken_for_those_that_are_like_it():
    (readings, share_RW), (others, other_RW) = texts(), texts(seed=1)
    twins = np.concatenate([TABLE, TABLE[3:] + 0.1])  # of each word, one that no text to learn from has
    # Every second word is replaced by its twin.
    changed = [
        (np.where((np.arange(len(ids)) % 2 == 0) & (ids > END), ids + WORDS, ids), types) for ids, types in others
    ]
    assert any((ids >= 3 + WORDS).any() for ids, _ in changed)
    alike, strangers = (bag_of(readings, teacher(share_RW), table=table) for table in (twins, np.ones_like(twins)))
    assert agreement(BagModel(alike).logits_of(changed), teacher(other_RW)) > 0.75
    assert agreement(BagModel(strangers).logits_of(changed), teacher(other_RW)) < 0.7


def test_a_bag_of_pairs_knows_what_it_has_seen_alone():
    readings = [
        (np.array([START, 5, END, word, END], np.int32), np.array([0, 0, 0, 1, 1], np.int8)) for word in (5, 6, 7)
    ]
    assert bag_of(readings, np.eye(3, dtype=np.float32)).seen.all()


def test_a_bag_of_texts_that_are_all_alike_answers_with_the_large_model_s_mean():
    readings = [(np.array([START, 5, END], np.int32), np.zeros(3, np.int8))] * 8
    bag = bag_of(readings, np.full((8, 1), 7.0, np.float32), large=REGRESSOR)
    assert not bag.seen.any()
    assert BagModel(bag).logits(*readings[0]) == pytest.approx([7.0], abs=0.3)


def test_a_head_learns_what_is_not_linear_in_its_features():
    (feature_RD, target_RK), (others_RD, wanted_RK) = features(), features(seed=1)
    head = exit_of(feature_RD, target_RK)
    assert agreement(exit_logits(head, others_RD), wanted_RK) > 0.8
    assert (head.task, head.large, head.layers, head.into.shape) == ("colours", "digest", 1, (16, 8))


def test_a_head_of_a_regressor_gives_its_values():
    feature_RD, target_RK = features()
    head = exit_of(feature_RD, 50 + target_RK[:, 1:2], large=REGRESSOR)
    assert np.mean((exit_logits(head, feature_RD) - 50 - target_RK[:, 1:2]) ** 2) < 0.1 * np.var(target_RK[:, 1])


def test_a_head_stores_what_it_has_learnt_on_standardised_features():
    """So features in another unit give a head with the same logits."""
    feature_RD, target_RK = features()
    moved_RD = 8 * feature_RD - 300
    expected = exit_logits(exit_of(feature_RD, target_RK), feature_RD)
    assert exit_logits(exit_of(moved_RD, target_RK), moved_RD) == pytest.approx(expected, abs=0.1)


def test_the_same_seed_gives_the_same_levels_and_another_one_others():
    readings, share_RW = texts(100)
    (feature_RD, logit_RK), other = features(100), replace(CONFIG, seed=1)
    tables = [bag_of(readings, teacher(share_RW), config=each).table for each in (CONFIG, CONFIG, other)]
    heads = [exit_of(feature_RD, logit_RK, config=each).into for each in (CONFIG, CONFIG, other)]
    for first, same, different in (tables, heads):
        assert np.array_equal(first, same) and not np.array_equal(first, different)


def test_progress_is_reported_up_to_the_last_step():
    reports = []
    bag_of(*_few(), progress=lambda done, total: reports.append((done, total)))
    assert reports == [(done, 12) for done in range(1, 13)]


def _few():
    readings, share_RW = texts(20)
    return readings, teacher(share_RW)


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_targets_that_are_not_finite_are_refused(broken):
    (readings, share_RW), (feature_RD, _) = texts(20), features(20)
    target_RK = teacher(share_RW)
    target_RK[3, 1] = broken
    for learn in (lambda: bag_of(readings, target_RK), lambda: exit_of(feature_RD, target_RK)):
        with pytest.raises(InputError, match="logits of the large model"):
            learn()


@pytest.mark.parametrize(
    ("layers", "exits"), [(1, ()), (2, (1,)), (4, (1,)), (11, (1,)), (12, (2, 4)), (24, (3, 8)), (22, (3, 7))]
)
def test_exits_are_chosen_by_depth(layers, exits):
    assert exit_layers(layers, DistilConfig()) == exits


def test_exits_are_those_of_the_settings_unless_one_is_at_the_last_layer():
    config = DistilConfig(exits=(1, 3))
    assert exit_layers(4, config) == (1, 3)
    assert exit_layers(12, DistilConfig(exits=())) == ()
    with pytest.raises(InputError, match="exits is 3, but must be below the layers of the large model, 3"):
        exit_layers(3, config)


@pytest.mark.parametrize(
    "settings",
    [
        *({"exits": exits} for exits in ((0,), (2, 1), (1, 1))),
        *({"weight": -0.1}, {"weight": float("nan")}, {"temperature": 0.0}, {"bag_rate": float("inf")}),
        *({"width": 0}, {"bag_epochs": 0}, {"most": 0}),
    ],
)
def test_settings_outside_their_limits_are_refused(settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        DistilConfig(**settings)
