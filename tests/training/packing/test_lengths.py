"""Prompts with lengths, from pairs or from a data set of questions and answers."""

from __future__ import annotations

import datasets
import pytest

from pliant.errors import InputError
from pliant.training.packing.generator import new_tokenizer
from pliant.training.packing.lengths import VOCABULARY, alpaca_prompt, divide, load, observed

PAIRS = [(f"prompt {n}", n + 1) for n in range(20)]


def test_observed_pairs_keep_their_order_and_have_a_fingerprint_of_their_own():
    data = observed("seen", PAIRS)
    assert (data.prompts[3], data.tokens[3], data.tokens.dtype.name) == ("prompt 3", 4, "int32")
    assert data.fingerprint == observed("other", PAIRS).fingerprint
    assert data.fingerprint != observed("seen", [*PAIRS[:-1], ("prompt 19", 7)]).fingerprint


def test_equal_prompts_are_not_divided():
    data = observed("seen", [(f"prompt {n % 7}", n + 1) for n in range(70)])
    fit, test = divide(data, 0.3, seed=1)
    assert not set(fit.prompts) & set(test.prompts)
    assert sorted([*fit.tokens, *test.tokens]) == sorted(data.tokens)
    assert len(set(test.prompts)) == 2


def test_a_data_sets_answers_are_counted_by_a_tokenizer_trained_on_them(tmp_path):
    rows = {"instruction": ["Say a", "Say b", "Say nothing"], "input": ["", "please", None]}
    rows["output"] = ["a word or two", "b", " "]
    datasets.Dataset.from_dict(rows).to_parquet(tmp_path / "some.parquet")
    data = load(tmp_path / "some.parquet")
    tokenizer = new_tokenizer(["a word or two", "b"], VOCABULARY)
    assert data.tokens.tolist() == [len(tokenizer.encode(text).ids) + 1 for text in ("a word or two", "b")]
    assert data.prompts == (alpaca_prompt("Say a"), alpaca_prompt("Say b", "please"))
    assert data.name == "some"


def test_a_file_that_is_none_or_lacks_a_column_is_told(tmp_path):
    with pytest.raises(InputError, match=r"No such file .* a readable parquet file"):
        load(tmp_path / "none.parquet")
    (tmp_path / "broken.parquet").write_text("x")
    with pytest.raises(InputError, match="a readable parquet file"):
        load(tmp_path / "broken.parquet")
    datasets.Dataset.from_dict({"instruction": ["a"]}).to_parquet(tmp_path / "lacking.parquet")
    with pytest.raises(InputError, match="such that input, output are among them"):
        load(tmp_path / "lacking.parquet")
