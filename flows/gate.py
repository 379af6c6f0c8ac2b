"""What a gate's verdict is made of: who passed, why, and the figures of either side. Knows no system and no Prefect.

Of whatever champion there is: a model that is worse than a linear one, beyond chance, does not pass (training/linear.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from pliant.flows.config import is_embedded
from pliant.flows.progress import say
from pliant.registry.releases import DECIDING, table
from pliant.report import Report
from pliant.training.linear import LinearComparison

Side = TypeVar("Side")
"""A system's figures of one side. A method `deciding` of it gives up to five of them, by what they are, in words."""
FIRST = "there is no champion yet"


@dataclass(frozen=True, slots=True)
class Judged(Generic[Side]):
    """`champion` is None where there is none."""

    passed: bool
    reason: str
    challenger: Side
    champion: Side | None = None


def judged(worse: str, good: str, challenger: Side, champion: Side | None = None) -> Judged[Side]:
    """Return the verdict for a reason why the challenger is rejected, empty where it passes, and one why it passes."""
    return Judged(not worse, worse or good, challenger, champion)


def overruled(verdict: Judged[Side], refusal: str) -> Judged[Side]:
    """Return the verdict, or a rejection where there is a reason to refuse whatever the figures say."""
    return replace(verdict, passed=False, reason=refusal) if refusal else verdict


def rejection(acceptable: bool, challenger: str, champion: str) -> str:
    """Return why the challenger is rejected, from what is said of it and the champion's figure; empty if acceptable."""
    return "" if acceptable else f"{challenger}, worse than the champion's {champion}"


def below_linear(compared: Iterable[tuple[str, str, LinearComparison]], allowed: bool | None) -> str:
    """Say how each model does beside a linear one, and return why the challenger is rejected; empty if it is not.

    `compared`: a model's name, the address of its data, and the comparison. `allowed`: the setting `gate.below_linear`.
    """
    reasons = []
    for name, address, comparison in compared:
        nevertheless = is_embedded(address) if allowed is None else allowed
        because = "the settings allow it" if allowed else "these data are there to try Pliant quickly"
        released = f" It may be released nevertheless: {because}." if comparison.worse and nevertheless else ""
        say(f"{name}: {comparison.describe()}.{released}")
        if not comparison.learnt and not nevertheless:
            what = "majority class" if comparison.measure == "accuracy" else "mean"
            scores = f"{comparison.measure} {comparison.model_score:.4f} against {comparison.constant_score:.4f}"
            reasons.append(f"{name} is no better than the {what} ({scores})")
        elif comparison.worse and not nevertheless:
            reasons.append(f"{name} is worse than a linear model beyond chance ({comparison.describe()})")
    advice = "start from a pretrained model or train longer, or set gate.below_linear = true to release it nevertheless"
    return f"{' and '.join(reasons)}: {advice}" if reasons else ""


def other_device(challenger: str, champion: str, allowed: bool) -> str:
    """Return why a challenger is rejected that was measured on another class of device; empty if it is not."""
    if allowed or challenger == champion:
        return ""
    return (
        f"it was measured on {challenger}, the champion on {champion}: what was measured on one class of device replaces "
        "nothing of another, except with --other-device (in the flow's settings: other_device)"
    )


def reason(verdicts: Mapping[str, Judged[Any]]) -> str:
    """Return the reasons of all verdicts, each behind its name; of a single one without the name."""
    if len(verdicts) == 1:
        return next(iter(verdicts.values())).reason
    return "; ".join(f"{name}: {verdict.reason}" for name, verdict in verdicts.items())


def deciding(verdicts: Mapping[str, Judged[Any]]) -> list[tuple[str, str, str]]:
    """Return what decided: rows of a measure in words, of the challenger, and of the champion."""
    rows = []
    for name, verdict in verdicts.items():
        sides = verdict.challenger, verdict.champion
        new, old = (dict[str, str](getattr(side, "deciding", dict)()) for side in sides)
        of = f"{name}: " if len(verdicts) > 1 else ""
        rows += [(of + what, value, old.get(what, "")) for what, value in new.items()]
    return rows


def of_replays(reports: Sequence[Report]) -> dict[str, str]:
    """Return means over replays, in words; none without replays."""
    if not reports:
        return {}
    in_time, p99 = (float(np.mean([getattr(each, name) for each in reports])) for name in ("attainment", "p99"))
    return {"requests answered in time": f"{in_time:.2%}", "99 of 100 requests take at most": milliseconds(p99)}


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.4g} ms"


def to_markdown(verdicts: Mapping[str, Judged[Any]]) -> str:
    """Return the verdicts in Markdown: a list of the reasons, and a table of what decided."""
    lines = [
        f"- {name}{': ' if name else ''}{'passed' if verdict.passed else 'failed'}, {verdict.reason}"
        for name, verdict in verdicts.items()
    ]
    return "\n".join([*lines, *table(DECIDING, deciding(verdicts))])
