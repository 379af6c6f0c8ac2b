"""The state of a text between levels: the answer so far, and the dropped words of the original."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.cascade.artifact import Candidate, Gate, Pruning
from pliant.protocol import Launch, Request, Result
from pliant.serving.cascade.catalog import ServedTask
from pliant.serving.cascade.endpoint import TextInProgress, begin, handler_of, read
from pliant.serving.driver import Dispatched, LaunchResult, Pending
from pliant.serving.lifecycle.catalog import Held
from tests.fixtures.cascade.published import LEVELS, UNSURE, tiny_cascade, tiny_classifier

KEEN, HALF = (Gate("always", pruning=Pruning("mean", value)) for value in (0.0, 1.0))
SMALL, LARGE = np.array([2.0, 1.0, 0.0], np.float32), np.array([0.0, 5.0, 0.0], np.float32)
CLASSIFIERS = {name: tiny_classifier("colours", name) for name in LEVELS}
NEVER = Gate("never")


def in_progress(
    text: str = UNSURE, gates: tuple[Gate, ...] = (KEEN,), names=("small", "large", "large")
) -> TextInProgress:
    """Return a text before the first of its levels, which are one more than the gates."""
    names = names[: len(gates) + 1]
    cascade = tiny_cascade("colours", ("a", "b"))
    levels = tuple(replace(cascade.levels[min(number, 1)], name=f"level {number}") for number in range(len(names)))
    candidate = Candidate("tried", tuple(range(len(names))), gates, 0.9, 0.9, 0.1, (1.0,) * len(names))
    served = tuple(
        Held(replace(CLASSIFIERS[name], name=f"level {number}"), 1, "", None) for number, name in enumerate(names)
    )
    handler = handler_of(ServedTask(replace(cascade, levels=levels, candidates=(candidate,)), 1, "", served))
    return begin(handler, 0, text, None, lambda: 0.5)


def pending(state: TextInProgress, *outputs) -> Pending:
    pending_request = Pending(Request(7, 0.0, 1.0, "colours"), state.payload, None, state)
    for launch, output in enumerate(outputs):
        pending_request.launches[launch] = LaunchResult(output, Dispatched(Launch(launch, 0, (7,)), 0.0), 0.01, 0.01)
    return pending_request


def words(state: TextInProgress) -> list[str]:
    return [state.original[which][start:end] for which, start, end in state.dropped]


def importance(state: TextInProgress, *kept: str) -> np.ndarray:
    """Return importance 1 for the tokens of the words in `kept`, and 0 for all others."""
    spans = [state.text[which][start:end] in kept for which, start, end in state.reading.spans]
    return np.array([float(word >= 0 and spans[word]) for word in state.reading.words], np.float32)


def test_an_answer_that_suffices_leaves_the_result_as_it_is():
    state = in_progress(gates=(NEVER,))
    result = Result(7)
    assert read(pending(state, (SMALL, None)), result) is result
    assert (state.levels_done, int(state.answers[-1].argmax())) == (1, 0)


def test_where_the_next_level_is_worth_it_it_gets_what_it_reads_in_its_own_tokens():
    state = in_progress(gates=(replace(KEEN, pruning=Pruning()),))
    one = pending(state, (SMALL, None))
    result = read(one, Result(7))
    assert result.gain == pytest.approx(1 - np.exp(2) / np.exp(SMALL).sum())
    assert result.length == len(one.payload[0]) == 9  # the large one reads "emerald" as two tokens
    assert state.text == (UNSURE, None)


def test_unimportant_words_are_dropped_and_reported_once_the_next_level_has_run():
    state = in_progress()
    one = pending(state, (SMALL, importance(state, "emerald")))
    assert read(one, Result(7)).length == 4
    assert state.text == ("emerald", None)
    assert words(state) == []  # it may still be cut short, and then nobody missed them
    read(pending(state, (SMALL, None), (LARGE, None)), Result(7))
    assert words(state) == ["the", "of", "a", "small", "house"]
    assert int(state.answers[-1].argmax()) == 1


def test_words_dropped_later_are_reported_at_their_original_position():
    state = in_progress("the  old rose, the old house", gates=(KEEN, KEEN))
    state.take(SMALL)
    state.prepare_next(importance(state, "rose", "old", "house"))
    assert state.text == ("old rose old house", None)
    state.take(SMALL)
    state.prepare_next(importance(state, "house"))
    state.take(LARGE)
    assert state.text == ("house", None)
    assert sorted(state.dropped) == [(0, 0, 3), (0, 5, 8), (0, 9, 13), (0, 13, 14), (0, 15, 18), (0, 19, 22)]


@given(
    st.lists(st.sampled_from(["rose", "the", "emerald", "seven,", "un-known", "sky."]), min_size=1, max_size=9),
    st.lists(st.floats(0, 1, width=32), min_size=80, max_size=80),
)
def test_what_is_dropped_and_what_is_left_are_the_whole_text(parts, weights):
    text = "  ".join(parts)
    state = in_progress(text, gates=(HALF, HALF))
    everything = [text[start:end] for _, start, end in state.reading.spans]
    for level in range(2):
        state.take(SMALL)
        state.prepare_next(np.array(weights[40 * level :][: state.length], np.float32))
    state.take(LARGE)
    spans = sorted(state.dropped)
    assert all(before[2] <= after[1] for before, after in pairwise(spans))
    left = [state.text[0][start:end] for _, start, end in state.reading.spans]
    assert sorted(words(state) + left) == sorted(everything)


def test_answers_of_two_levels_are_weighed_as_the_gate_says():
    state = in_progress(gates=(replace(KEEN, weight=0.75, pruning=Pruning()),))
    state.take(SMALL)
    before = state.answers[-1]
    state.prepare_next(None)
    state.take(LARGE)
    large = np.exp(LARGE) / np.exp(LARGE).sum()
    np.testing.assert_allclose(state.answers[-1][0], 0.75 * large + 0.25 * before[0], rtol=1e-6)
