"""What happened in `pliant demo --story`, second by second: values without effects, a table, and a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WINDOW = 60
"""Answers over which the accuracy that clients see is averaged."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A request that ended at second `at` of the story, `seconds` after it was sent; `failure`: empty for an answer."""

    at: float
    seconds: float
    version: int  # of the model that answered; 0: none
    correct: bool
    confidence: float
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """The service's status at a second: the most evidence of any stream, as a share (see `evidence_share`), the trial."""

    at: float
    release: int | None
    evidence: float
    stage: str  # shadow, canary, promoted, or empty without a trial
    share: float  # of the requests that the challenger answers


@dataclass(frozen=True, slots=True)
class Mark:
    """An event: a short name for the picture, and a sentence for the table."""

    at: float
    name: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """All that was seen. `releases`: version of the model that answers name -> number of its release."""

    answers: Sequence[Answer]
    samples: Sequence[Sample]
    marks: Sequence[Mark]
    releases: Mapping[int, int] = field(default_factory=dict)

    @property
    def end(self) -> float:
        """Return the last second of which anything is known."""
        return max((each.at for part in (self.answers, self.samples, self.marks) for each in part), default=0.0)

    def release_of(self, answer: Answer) -> int:
        """Return the number of the release that answered; 0 where it is not known."""
        return self.releases.get(answer.version, 0)


def evidence_share(evidence: float, threshold: float) -> float:
    """Return the evidence as a share, from 0 to 1, of what raises an alarm, on a logarithmic scale."""
    return 0.0 if evidence <= 1 else min(1.0, math.log(evidence) / math.log(threshold))


def sample(at: float, status: Mapping[str, Any]) -> Sample:
    """Return what a service's status says."""
    watch, trial = status.get("watch") or {}, status.get("trial") or {}
    shares = [evidence_share(row["evidence"], row["threshold"]) for row in watch.get("streams", ())]
    alarmed = any(row["state"] == "alarm" for row in watch.get("streams", ()))
    evidence = 1.0 if alarmed else max(shares, default=0.0)
    return Sample(at, status.get("release"), evidence, str(trial.get("stage", "")), float(trial.get("share", 0.0)))


def moving(answers: Sequence[Answer], window: int = WINDOW) -> list[tuple[float, float, float]]:
    """Return (second, share of right answers, mean confidence) over the last `window` answers, once there are a third."""
    answered = [answer for answer in answers if not answer.failure]
    points = []
    for end in range(max(1, window // 3), len(answered) + 1):
        last = answered[max(0, end - window) : end]
        right = sum(answer.correct for answer in last) / len(last)
        points.append((last[-1].at, right, sum(answer.confidence for answer in last) / len(last)))
    return points


def height(each: Sample) -> float:
    """Return the height of a trial's stage in the picture: 0 none, 1 shadow, 1 to 2 canary by its share, 2 promoted."""
    if each.stage == "canary":
        return 1.0 + each.share
    return {"shadow": 1.0, "promoted": 2.0}.get(each.stage, 0.0)


def seconds_until(timeline: Timeline, release: int, since: float) -> float | None:
    """Return the seconds from `since` until the first answer from a release after it; None where there is none."""
    ends = [each.at for each in timeline.answers if each.at >= since and timeline.release_of(each) == release]
    return min(ends) - since if ends else None


def rows(timeline: Timeline) -> list[tuple[str, str]]:
    """Return the table: the second and the sentence of each event, in the order in which they happened."""
    return [(f"{mark.at:.1f}", mark.sentence) for mark in sorted(timeline.marks, key=lambda mark: mark.at)]


COLOURS = ("#1b6ca8", "#2e7d4f", "#c1440e", "#b8860b")
"""Of releases, in their order."""
EVIDENCE, TRIAL, GREY, DARK = "#7a4ea3", "#4f8f8b", "#8a8a8a", "#333333"
APART = 0.027
"""Of the whole time, between the names of two events."""


def draw(timeline: Timeline, path: Path, title: str) -> Path:
    """Write the picture as PNG and return its path: one panel each for accuracy, release, evidence and trial."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 8))
    panels = figure.subplots(4, 1, sharex=True, height_ratios=(2, 1.5, 1.2, 1.2))
    figure.subplots_adjust(left=0.115, right=0.925, top=0.82, bottom=0.065, hspace=0.18)
    marks = sorted(timeline.marks, key=lambda mark: mark.at)
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
        for mark in marks:
            panel.axvline(mark.at, color=GREY, linewidth=0.8, linestyle=":", zorder=0)
    _draw_accuracy(panels[0], timeline)
    _draw_releases(panels[1], timeline)
    _draw_evidence(panels[2], timeline)
    _draw_trial(panels[3], timeline)
    _draw_names(panels[0], marks, timeline.end)
    panels[3].set(xlabel="seconds", xlim=(0, max(timeline.end, 1.0)))
    for panel in panels:
        panel.yaxis.set_label_coords(-0.085, 0.5)
    figure.suptitle(title, x=0.115, y=0.975, ha="left", fontsize=12)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    return path


def places(seconds: Sequence[float], gap: float) -> list[float]:
    """Return where labels of these ascending seconds stand so that two are at least `gap` apart, moved right as needed."""
    standing: list[float] = []
    for at in seconds:
        standing.append(at if not standing else max(at, standing[-1] + gap))
    return standing


def _draw_names(axes: Any, marks: Sequence[Mark], end: float) -> None:
    """Write the events' names above the highest panel, slanted, each with a line down to its second."""
    across = axes.get_xaxis_transform()
    standing = places([mark.at for mark in marks], APART * max(end, 1.0))
    style = {"transform": across, "clip_on": False}
    for mark, at in zip(marks, standing, strict=True):
        axes.plot([mark.at, at], [1.0, 1.1], color=GREY, linewidth=0.8, **style)
        axes.text(at, 1.12, mark.name, rotation=45, rotation_mode="anchor", fontsize=8.5, color=DARK, **style)


def _draw_accuracy(axes: Any, timeline: Timeline) -> None:
    points = moving(timeline.answers)
    if points:
        at, right, sure = zip(*points, strict=True)
        axes.plot(at, [100 * share for share in right], color=COLOURS[0], label="right")
        axes.plot(at, [100 * share for share in sure], color=GREY, linewidth=1, label="mean confidence")
        axes.legend(frameon=False, loc="lower left", fontsize=8, ncols=2)
    failed = [answer.at for answer in timeline.answers if answer.failure]
    axes.plot(failed, [2] * len(failed), "x", color="black", clip_on=False)
    axes.set(ylabel=f"% of the last\n{WINDOW} answers", ylim=(0, 100))


def _draw_releases(axes: Any, timeline: Timeline) -> None:
    numbers = sorted({timeline.release_of(answer) for answer in timeline.answers if not answer.failure} - {0})
    for number in numbers:
        at = [each.at for each in timeline.answers if not each.failure and timeline.release_of(each) == number]
        colour = COLOURS[(number - 1) % len(COLOURS)]
        axes.plot(at, [number] * len(at), "|", color=colour, markersize=11, alpha=0.6)
    axes.set(ylabel="release that\nanswered", yticks=numbers or [1], ylim=(0.4, max(numbers, default=1) + 0.6))


def _draw_evidence(axes: Any, timeline: Timeline) -> None:
    axes.fill_between(
        [each.at for each in timeline.samples],
        [100 * each.evidence for each in timeline.samples],
        step="post",
        color=EVIDENCE,
        alpha=0.5,
        linewidth=0,
    )
    axes.axhline(100, color=EVIDENCE, linewidth=0.8)
    axes.set(ylabel="evidence, % of\nan alarm (log)", ylim=(0, 108))


def _draw_trial(axes: Any, timeline: Timeline) -> None:
    axes.fill_between(
        [each.at for each in timeline.samples],
        [height(each) for each in timeline.samples],
        step="post",
        color=TRIAL,
        alpha=0.6,
        linewidth=0,
    )
    ticks = {0.0: "none", 1.0: "shadow", 1.5: "canary 50%", 2.0: "promoted"}
    axes.set(ylabel="trial", ylim=(0, 2.15))
    axes.set_yticks(list(ticks), list(ticks.values()), fontsize=8)
