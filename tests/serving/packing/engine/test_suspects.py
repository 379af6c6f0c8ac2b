"""Of the outputs that were in processes when they died, the one that kills them is given up, and no other."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from pliant.serving.packing.engine.engine import CLEAR, MAX_CRASHES, SequenceLimit, Suspects

NUMBERS = count()


@dataclass(eq=False)
class Output:
    id: int = field(default_factory=lambda: next(NUMBERS))
    tokens: list[int] = field(default_factory=list)
    finish: str = ""
    crashes: int = 0


def test_several_suspects_are_tried_one_at_a_time_and_the_one_with_which_it_dies_is_given_up():
    suspects, first, second = Suspects(), Output(), Output()
    for _ in range(MAX_CRASHES):
        assert suspects.died([first, second]) == []
    assert suspects.holds(first) and suspects.holds(second)
    assert suspects.next() is first and not suspects.holds(first)
    assert suspects.next() is None  # one at a time
    assert suspects.died([first, second]) == [first]
    assert suspects.next() is second
    second.tokens += [0] * CLEAR
    suspects.advanced(second)
    assert second.crashes == 0 and suspects.next() is None


@given(st.integers(1, 6), st.data())
def test_the_poisonous_output_alone_is_given_up_whoever_else_is_there(size, data):
    outputs = [Output() for _ in range(size)]
    poison = data.draw(st.sampled_from(outputs))
    suspects, given_up = Suspects(), []
    for _ in range(10 * size):
        suspects.next()
        running = [output for output in outputs if not suspects.holds(output) and not output.finish]
        if poison in running:
            for output in suspects.died([output for output in outputs if not output.finish]):
                output.finish = "failed"
                suspects.forget(output)
                given_up.append(output)
        for output in running:
            if output is not poison and not suspects.holds(output):
                output.tokens += [0] * CLEAR
                suspects.advanced(output)
    assert given_up == [poison]
    assert not any(map(suspects.holds, outputs))


def test_each_lack_of_memory_halves_what_ran_and_one_alone_stays():
    seen = []
    limit = SequenceLimit(64, lambda changed: seen.append((changed.value, changed.exhausted)))
    assert limit.value == 64
    assert [limit.lower(running) for running in (64, 11, 0, 2, 1, 9)] == [True] * 4 + [False] * 2
    assert seen == [(32, 1), (5, 2), (2, 3), (1, 4), (1, 5), (1, 6)]
    assert (limit.value, limit.planned, limit.exhausted) == (1, 64, 6)
