"""N-grams have the numbers that their definition says, and a bag's logits are those of the plain one written out here."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.cascade.artifact import Bag, Exit
from pliant.cascade.bag import BIGRAMS, FIRST, KINDS, SECOND, TOKENS, BagModel, grams
from pliant.cascade.exit import exit_logits

IDS = st.lists(st.integers(0, 5) | st.integers(0, TOKENS - 1), min_size=1, max_size=12)
FEW = st.lists(st.integers(0, 9), min_size=1, max_size=12)


def tokens(first, second=()):
    return np.array([*first, *second], np.int32), np.array([0] * len(first) + [1] * len(second), np.int8)


def bigram(a, b):
    return BIGRAMS + (a * FIRST + b * SECOND) % BIGRAMS


def number(gram, kind):
    return gram + kind * (BIGRAMS if gram >= BIGRAMS else TOKENS)


@given(IDS)
def test_a_text_has_the_numbers_of_its_tokens_and_of_neighbours(ids):
    expected = [*ids, *map(bigram, ids, ids[1:])]
    assert sorted(grams(*tokens(ids)).tolist()) == sorted(expected)


@given(IDS, IDS)
def test_an_n_gram_of_a_pair_is_told_by_the_text_that_it_is_in_or_by_being_in_both(first, second):
    ids, of = [*first, *second], [0] * len(first) + [1] * len(second)
    found = [*zip(ids, of, strict=True), *zip(map(bigram, ids, ids[1:]), of[1:], strict=True)]
    texts = [{gram for gram, text in found if text == which} for which in (0, 1)]
    kinds = [2 if gram in texts[0] & texts[1] else text for gram, text in found]
    expected = [number(gram, kind) for (gram, _), kind in zip(found, kinds, strict=True)]
    expected += [KINDS + kind for kind in kinds[: len(ids)]]
    assert Counter(grams(*tokens(first, second)).tolist()) == Counter(expected)


def test_numbers_of_different_sorts_are_never_the_same_and_fit_32_bits():
    last = TOKENS - 1
    starts = [0, TOKENS, 2 * TOKENS, KINDS, BIGRAMS, 2 * BIGRAMS, 3 * BIGRAMS, 2**31 - 1]
    ends = [last, TOKENS + last, 2 * TOKENS + last, KINDS + 2, *(k * BIGRAMS + BIGRAMS - 1 for k in (1, 2, 3))]
    assert all(end < start for end, start in zip(ends, starts[1:], strict=True))


def bag(classes=3, width=4, known=range(8)):
    """Return a bag of the tokens and the neighbours in `known`, in either text of a pair."""
    rng = np.random.default_rng(0)
    plain = [*known, *(bigram(a, b) for a in known for b in known[::3])]
    numbers = np.unique([number(gram, kind) for gram in plain for kind in (0, 1)]).astype(np.int32)
    table, head = (rng.normal(size=(rows, width)).astype(np.float32) for rows in (len(numbers), classes))
    names = tuple(map(str, range(classes)))
    return Bag("bag", "t", names, "d", "{}", 16, "f", numbers, table, head, np.arange(classes, dtype=np.float32))


def plain_logits(of, ids, types):
    row_of = dict(zip(of.grams.tolist(), of.table.astype(float), strict=True))
    numbers = grams(ids, types).tolist()
    rows = [row_of[number] for number in numbers if number in row_of]
    unknown = sum(number not in row_of for number in numbers[: len(ids)])
    if not rows or unknown > (len(ids) + 2) / 2:
        return np.zeros(3)
    return of.bias + of.head @ np.mean(rows, axis=0)


@given(FEW, st.just([]) | FEW)
def test_logits_are_the_head_s_of_the_mean_row_of_known_n_grams(first, second):
    text, of = tokens(first, second), bag()
    assert BagModel(of).logits(*text) == pytest.approx(plain_logits(of, *text), abs=1e-5)


def test_a_text_of_another_language_gets_equal_outputs_and_leaves_them_alone():
    """Its few known tokens would otherwise decide, as surely as those of a text that is known whole."""
    model = BagModel(bag())
    for ids in ([100, 2**22 - 1], [100, 101, 102, 103, 1]):
        output = model.logits(*tokens(ids))
        assert output.tolist() == [0.0, 0.0, 0.0]
        output += 1
    assert model.logits(*tokens([100, 101, 1, 2])).tolist() != [0.0, 0.0, 0.0]
    guessed = replace(bag(), seen=~np.isin(bag().grams, (3, 4)))
    assert BagModel(guessed).logits(*tokens([3, 4, 3, 4])).tolist() == [0.0, 0.0, 0.0]
    assert BagModel(guessed).logits(*tokens([3, 4, 1])) == pytest.approx(
        plain_logits(bag(), *tokens([3, 4, 1])), abs=1e-5
    )


def test_a_bag_that_knows_nothing_answers_nothing_and_in_a_regression_the_mean():
    assert BagModel(bag(known=range(0))).logits(*tokens([1, 2])).tolist() == [0.0, 0.0, 0.0]
    regression = replace(bag(known=range(0)), classes=())
    assert BagModel(regression).logits(*tokens([1, 2])).tolist() == [0.0, 1.0, 2.0]


def test_many_texts_get_the_logits_of_each_and_none_get_no_rows():
    model, texts = BagModel(bag()), [tokens([1, 2]), tokens([3], [3, 4]), tokens([99])]
    assert model.logits_of(texts).tolist() == [model.logits(*text).tolist() for text in texts]
    assert model.logits_of([]).shape == (0, 3)


def test_a_head_s_logits_are_those_of_torch():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    into, into_bias, out, out_bias = (rng.normal(size=shape).astype(np.float32) for shape in ((5, 6), 5, (3, 5), 3))
    feature_RD = rng.normal(size=(7, 6)).astype(np.float32)
    head = Exit("exit1", "t", ("a", "b", "c"), "d", 1, "f", into, into_bias, out, out_bias)
    layers = torch.nn.Linear(6, 5), torch.nn.GELU(), torch.nn.Linear(5, 3)
    for layer, weight, bias in ((layers[0], into, into_bias), (layers[2], out, out_bias)):
        layer.weight.data, layer.bias.data = torch.from_numpy(weight), torch.from_numpy(bias)
    with torch.no_grad():
        expected = torch.nn.Sequential(*layers)(torch.from_numpy(feature_RD)).numpy()
    assert exit_logits(head, feature_RD) == pytest.approx(expected, abs=1e-5)
