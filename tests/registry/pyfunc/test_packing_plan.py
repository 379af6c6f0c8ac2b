"""A plan of packing that is loaded by MLflow says when requests would be answered, by hand for one and two of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from pliant.errors import InputError
from pliant.packing.scheduling.forecast import QUANTILES
from registry import codec
from tests.fixtures.packing.tiny import CONTEXT, some_packing
from tests.fixtures.pyfunc import served


@pytest.fixture(scope="module")
def served_plan(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan")
    codec.save(some_packing(), folder)
    return served("packing-plan", folder, context=CONTEXT)


@pytest.fixture
def plan(served_plan):
    return served_plan[1]


def rows(*requests: tuple[float, int, int]) -> pd.DataFrame:
    return pd.DataFrame(requests, columns=["arrival", "prompt_tokens", "output_tokens"])


def seconds(queries: int, sequences: int, cached: int) -> float:
    """An iteration of the plan's device: 2 ms, 20 us a query, 100 us a sequence and 0.1 us a token in the cache."""
    return 0.002 + 2e-5 * queries + 1e-4 * sequences + 1e-7 * cached


def test_a_request_alone_reads_its_prompt_in_one_iteration_and_generates_a_token_in_each(plan):
    (answer,) = plan.predict(rows((3.0, 5, 3))).to_dict("records")
    first = seconds(5, 1, 5)
    assert answer["first_token"] == pytest.approx(first), "counted from its own arrival"
    assert answer["seconds"] == pytest.approx(first + seconds(1, 1, 6) + seconds(1, 1, 7))
    assert answer["preemptions"] == 0


def test_requests_share_iterations_and_keep_their_rows(plan):
    answers = plan.predict(rows((0.0, 5, 2), (0.0, 7, 1)))
    together = seconds(12, 2, 12)
    assert list(answers["first_token"]) == pytest.approx([together, together])
    assert list(answers["seconds"]) == pytest.approx([together + seconds(1, 1, 6), together])


def test_a_policy_can_be_chosen_and_an_unknown_one_is_refused(plan):
    requests = rows((0.0, 30, 40), (0.0, 20, 3))
    assert plan.predict(requests, {"policy": "orca"}).notna().all().all()
    with pytest.raises(InputError, match="policy is best, but must be one of"):
        plan.predict(requests, {"policy": "best"})


def test_the_forecast_of_a_request_is_that_of_the_observed_one_most_like_it(served_plan):
    module, _ = served_plan
    packing = some_packing(
        prompt_tokens=np.array([10, 10, 50], np.int32),
        output_tokens=np.array([5, 50, 5], np.int32),
        forecasts=np.arange(24, dtype=np.float32).reshape(3, len(QUANTILES)),
        buckets=np.array([10, 60, 20], np.int32),
    )
    for prompt_tokens, output_tokens, like in ((12, 40, 1), (40, 6, 2), (9, 1, 0), (31, 26, 2)):
        prompt = module._prompt(packing, CONTEXT, 4, 1.5, prompt_tokens, output_tokens)
        assert prompt.forecast == tuple(range(8 * like, 8 * like + 8))
        assert prompt.bucket == (10, 60, 20)[like]
        assert (prompt.id, prompt.arrival, prompt.tokens, prompt.exact) == (4, 1.5, prompt_tokens, output_tokens)
        assert prompt.limit == 160 - prompt_tokens


@pytest.mark.parametrize(("context", "longest"), [(160, 160), (1000, 48 * 16)])
def test_a_request_may_fill_the_context_or_the_memory_and_no_more(served_plan, context, longest):
    module, _ = served_plan
    assert module._prompt(some_packing(), context, 0, 0.0, longest - 1, 1).limit == 1
    limits = rf"row 0 is .*, but must be a finite arrival and at least 1 token each, together at most {longest}"
    with pytest.raises(InputError, match=limits):
        module._prompt(some_packing(), context, 0, 0.0, longest - 1, 2)


@pytest.mark.parametrize("request_", [(0.0, 0, 5), (0.0, 5, 0), (np.inf, 5, 5), (np.nan, 5, 5)])
def test_a_row_that_is_no_request_is_named(plan, request_):
    with pytest.raises(InputError, match="row 1 is"):
        plan.predict(rows((0.0, 1, 1), request_))
