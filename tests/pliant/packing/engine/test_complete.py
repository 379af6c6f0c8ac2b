"""Completions are those of plain generation, in the order of the prompts."""

from __future__ import annotations

import pytest

from pliant.errors import InputError
from pliant.packing.engine.complete import complete
from tests.fixtures.packing.generators import CONTEXT, ENDS, HOSTED, LIMIT, SCARCE, generated, prompts, tiny_generator


@pytest.mark.parametrize("memory", [SCARCE, HOSTED])
def test_greedy_completions_are_those_of_plain_generation_however_little_memory_there_is(memory):
    texts = prompts(20)
    completions = complete(tiny_generator(), texts, memory, LIMIT)
    assert [completion.tokens for completion in completions] == generated(tiny_generator(), texts)
    for completion in completions:
        assert completion.finished == ("stop" if completion.tokens[-1] in ENDS else "length")
        assert completion.finished == "stop" or len(completion.tokens) == LIMIT


@pytest.mark.parametrize("ids", [(), (1,) * CONTEXT])
def test_a_prompt_that_leaves_no_token_is_refused_by_its_number(ids):
    with pytest.raises(InputError, match="prompt 1 is"):
        complete(tiny_generator(), [(1, 2), ids], HOSTED)
