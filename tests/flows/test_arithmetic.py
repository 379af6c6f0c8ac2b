"""Half precision is served where it is faster and accuracy allows it, and float32 elsewhere, with the reason."""

from __future__ import annotations

import pytest

from pliant.errors import InputError
from pliant.flows import arithmetic
from pliant.flows.arithmetic import ArithmeticConfig, half_of, too_costly, too_slow


@pytest.mark.parametrize("half", ["bfloat16", None])
def test_auto_measures_what_the_device_has_and_float32_nothing(monkeypatch, half):
    monkeypatch.setattr(arithmetic, "half_precision", lambda device: half)
    assert half_of(ArithmeticConfig(), "cpu") == half
    assert half_of(ArithmeticConfig("float32"), "cpu") is None


def test_a_named_precision_is_measured_where_the_device_has_it_and_else_refused(monkeypatch):
    monkeypatch.setattr("pliant.precision.has_bfloat16", lambda device: True)
    assert half_of(ArithmeticConfig("bfloat16"), "cpu") == "bfloat16"
    monkeypatch.setattr("pliant.precision.has_bfloat16", lambda device: False)
    with pytest.raises(InputError, match=r"arithmetic.precision is bfloat16, but must be float32 here"):
        half_of(ArithmeticConfig("bfloat16"), "cpu")
    with pytest.raises(
        InputError, match=r"arithmetic.precision is float16, but must be float32 here: float16 is for GPUs"
    ):
        half_of(ArithmeticConfig("float16"), "cpu")


def test_auto_takes_only_what_is_clearly_faster_and_a_named_one_need_not_be():
    assert too_slow(ArithmeticConfig(), "bfloat16", 0.94) == ""
    assert too_slow(ArithmeticConfig(), "bfloat16", 0.95) == "float32 is served: bfloat16 takes 0.95 times as long"
    assert too_slow(ArithmeticConfig("bfloat16"), "bfloat16", 3.0) == ""


@pytest.mark.parametrize("precision", ["auto", "bfloat16"])
def test_what_costs_more_than_is_tolerated_is_never_served(precision):
    config = ArithmeticConfig(precision, tolerance=0.01)
    assert too_costly(config, "bfloat16", 0.01) == ""
    sentence = "float32 is served: bfloat16 gets 1.10% fewer answers right, and 1.00% are tolerated"
    assert too_costly(config, "bfloat16", 0.011) == sentence
