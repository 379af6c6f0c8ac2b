"""How many texts go into one launch: more only where that pays, costs no deadline, and does not delay the mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.bins.knowledge import MIN_GAIN, batch_size, latest_end
from tests.fixtures.bins.loads import ask

LADDER = (1, 2, 4, 8)  # 4 is a size of another length only
FIXED = 0.010  # seconds of a launch in addition to those of its texts


def cost(length: int, texts: int) -> tuple[int, float]:
    """A launch has a fixed part, which a larger batch saves. There is no shape for 4 texts."""
    rows = next(size for size in (1, 2, 8) if size >= texts)
    return 0, FIXED + 1e-4 * length * rows


def size(texts, of=cost, now: float = 0.0, waiting: float = 0.0) -> int:
    return batch_size(texts, LADDER, of, lambda request: request.deadline, now, waiting)


def alike(count: int, length: int = 10, within: float = 10.0):
    return [ask(i, 0.0, length, within=within) for i in range(count)]


some_texts = st.lists(
    st.builds(ask, st.just(0), st.just(0.0), st.integers(1, 200), st.just("mail"), st.floats(0.001, 0.3)),
    min_size=1,
    max_size=9,
)


@given(some_texts, st.floats(0.0, 0.1))
def test_of_all_that_these_rules_allow_it_is_the_one_of_most_texts_a_second(texts, now):
    """Gains below `MIN_GAIN` do not count."""

    def allowed(n: int) -> bool:
        seconds = cost(max(text.length for text in texts[:n]), n)[1]
        able = [text.deadline for text in texts[:n] if now + cost(text.length, 1)[1] <= text.deadline]
        return seconds <= cost(texts[0].length, 1)[1] * (n + 1) / 2 and all(now + seconds <= end for end in able)

    def rate(n: int) -> float:
        return n / cost(max(text.length for text in texts[:n]), n)[1]

    tried = [1, *(n for n in LADDER[1:] if n <= len(texts) and allowed(n))]
    chosen = size(texts, now=now)
    assert chosen in tried
    assert all(rate(chosen) * MIN_GAIN > rate(n) * 0.999999 for n in tried)


def test_a_size_that_does_not_pay_hides_no_larger_one_that_does():
    """A ladder holds the sizes of all lengths. Where 4 texts had to run as 8, a batch of 8 was once not considered."""
    texts = alike(8, 60)
    assert cost(60, 4)[1] > cost(60, 1)[1] * 5 / 2
    assert size(texts) == 8
    assert size(texts[:7]) == 2


def test_a_share_of_the_time_is_kept_for_the_way_back():
    assert latest_end(ask(1, 2.0, within=10.0), 0.15) == pytest.approx(10.5)
