"""Kept hidden states: within their bound, the last used ones."""

from __future__ import annotations

import torch

from pliant.cascade.states import States


def key(number: int):
    return 0, 1, bytes([number]), b""


def kept(states: States, count: int) -> list[int]:
    return [number for number in range(count) if states.get([key(number)]) is not None]


def test_those_not_used_for_longest_go_when_the_bytes_are_exceeded():
    states = States(most=3 * 4)
    states.put((key(number), torch.zeros(1)) for number in range(3))
    states.get([key(0)])
    states.put([(key(3), torch.zeros(1))])
    assert kept(states, 4) == [0, 2, 3]
    states.put([(key(4), torch.zeros(4))])
    assert kept(states, 5) == [], "larger than the bound"


def test_bytes_are_counted_once_for_a_key_put_again_and_given_back_for_one_dropped():
    states = States(most=3 * 4)
    for _ in range(5):
        states.put([(key(0), torch.zeros(2))])
    states.put([(key(1), torch.zeros(1))])
    assert kept(states, 2) == [0, 1]
    states.drop([key(0), key(7)])
    states.put([(key(2), torch.zeros(2))])
    assert kept(states, 3) == [1, 2]


def test_several_are_returned_together_or_not_at_all():
    states = States(most=100)
    states.put((key(number), torch.full((1,), number)) for number in range(2))
    assert [int(state) for state in states.get([key(1), key(0), key(1)])] == [1, 0, 1]
    assert states.get([key(0), key(2)]) is None
