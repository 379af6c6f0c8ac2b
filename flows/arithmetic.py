"""In which precision a flow's models are served: in half precision where that is faster and accuracy allows it.

Half precision is bfloat16, or float16 on a GPU without it. What is measured is measured in each of the two, and a plan holds
figures of the one that it is served in alone. Knows no system.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from pliant.precision import FLOAT32, PRECISIONS, dtype_of, half_precision
from pliant.settings import OneOf

AUTO = "auto"
FASTER = 0.95
"""Of float32's seconds, what half precision must stay below to be taken: what is less may be noise."""


@dataclass(frozen=True, slots=True)
class ArithmeticConfig:
    """`precision`: auto, or one of pliant.precision.PRECISIONS.

    auto takes half precision where the device has instructions for it and it was measured faster. Half precision that is
    named is taken however fast it is. Either way float32 is served where half precision costs more than `tolerance` of
    the share of right answers.
    """

    precision: Annotated[str, OneOf((AUTO, *PRECISIONS))] = AUTO
    tolerance: Annotated[float, Field(ge=0, lt=1)] = 0.005


def half_of(config: ArithmeticConfig, device: str) -> str | None:
    """Return the precision to be measured beside float32; None where float32 is served in any case.

    Raises `InputError` for a named precision that the device has no instructions for.
    """
    if config.precision == AUTO:
        return half_precision(device)
    dtype_of(config.precision, device, "arithmetic.precision")
    return None if config.precision == FLOAT32 else config.precision


def too_slow(config: ArithmeticConfig, precision: str, ratio: float) -> str:
    """Return why half precision, which takes `ratio` times the seconds of float32, is not served; empty if it may be."""
    if config.precision != AUTO or ratio < FASTER:
        return ""
    return f"float32 is served: {precision} takes {ratio:.2f} times as long"


def too_costly(config: ArithmeticConfig, precision: str, cost: float) -> str:
    """Return why half precision, which gets this share less of the answers right, is not served; empty if it may be."""
    if cost <= config.tolerance:
        return ""
    return (
        f"float32 is served: {precision} gets {cost:.2%} fewer answers right, and {config.tolerance:.2%} are tolerated"
    )


def chosen(config: ArithmeticConfig, precision: str, ratio: float, cost: Callable[[], float]) -> tuple[bool, str]:
    """Return whether half precision is served, and why in a sentence. `cost` is asked for only where it is fast enough."""
    if reason := too_slow(config, precision, ratio):
        return False, reason
    lost = cost()
    reason = too_costly(config, precision, lost)
    return not reason, reason or taken(precision, ratio, lost)


def taken(precision: str, ratio: float, cost: float) -> str:
    """Return in a sentence what half precision gains and costs."""
    return f"{precision} is served: it takes {ratio:.2f} times as long as float32 and gets {max(0.0, cost):.2%} fewer right"
