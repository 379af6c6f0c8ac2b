"""What changed texts do to a plan, and after how many audited answers the service serves a safer candidate.

On one half of the held-out texts everything is planned. The levels then read the other half unchanged, with typos, with
words that no text to fit had, and texts of another data set in its place. Audited are early answers, drawn with
replacement: of unchanged texts, then of changed ones. The bet, what it is against and what is served afterwards are the
service's own (serving/cascade/audit.py). A made-up stream's differing answers double, where 2,000 texts proved the 2%.

Shape suffixes: S streams, B bets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from pliant.benchmarks.cascade.contest import BOUGHT, DROP, LABELS, UNLABELLED, halves, show, to_buy
from pliant.benchmarks.cascade.material import QUICK, Material, material, read, read_again, ready
from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.results import Target
from pliant.cascade.artifact import Candidate, Cascade, Outputs
from pliant.cascade.certify import clopper_pearson
from pliant.cascade.evaluate import EvaluationData, evaluate, level_step, subset
from pliant.cascade.plan import PlanConfig, make
from pliant.outcomes.record import TARGET, bet, evidence, initial_wealth
from pliant.serving.cascade.audit import proven, safest

OTHERS = {"massive": "sst2", "banking77": "massive", "clinc150": "sst2", "sst2": "massive"}
"""Data set -> the one that its new words and the texts of another domain are of."""
UNCHANGED, TYPOS, WORDS, DOMAIN = "unchanged", "typos", "new words", "another domain"
SHARE = 1 / 3  # of the words that may change
WORD = re.compile(r"[^\W\d_]{4,}")
STREAMS, BEFORE, AFTER = 20, 3000, 10_000  # audited answers before the change, and at most after it
SAME, DOUBLED, PROVEN_ON, CHANGES = 0.02, 0.04, 2000, (500, 3000)
QUIET = 520_000  # audited answers in 20 months at 1 request/s, of which 1% are audited

Index = NDArray[np.int64]
Floats = NDArray[np.float64]


def shift(context: Context) -> Measured:
    """Measure on every data set of `OTHERS` (in the quick setting on those that are ready), and on the made-up stream."""
    levels, audits = list[dict[str, Any]](), list[dict[str, Any]]()
    for name in [name for name in OTHERS if context.full or name in ready()] or [QUICK]:
        whole = material(name, context)
        planning, judged = halves(len(whole.ours.outputs.labels), 0)
        reading = {UNCHANGED: subset(whole.ours.outputs, judged)}
        reading |= read_again(name, judged, changed(name, judged), context)
        reading[DOMAIN] = unlabelled(reading[DOMAIN])
        with context.stage(f"{name}: audits"):
            for plan, cascade in planned(whole, planning, len(judged)).items():
                shown = {what: EvaluationData(outputs, cascade.levels) for what, outputs in reading.items()}
                for what, data in shown.items():
                    key = {"set": name, "plan": plan, "shift": what}
                    levels.append(key | figures(cascade.candidates[0], data))
                    audits.append(key | audited(cascade, shown[UNCHANGED], data))
    with context.stage("twice as many answers that differ"):
        targets, streams = doubled(context.choose(200, 1000, 20))
    return targets, {"levels": levels, "audits": audits, "made up": streams}


def changed(name: str, rows: Index) -> dict[str, list[str]]:
    """Return these of the held-out texts as every change leaves them."""
    (data, hidden), (other, _) = read(name), read(OTHERS[name])
    texts = [data.first[row] for row in data.split.profiling[rows]]
    seen = content_words([*(data.first[row] for row in data.split.fit), *(text for text, _ in hidden)])
    words, rng = sorted(content_words(other.first) - seen), np.random.default_rng(0)
    mutations = {TYPOS: [typos(text, rng) for text in texts], WORDS: [new_words(text, words, rng) for text in texts]}
    return mutations | {DOMAIN: [other.first[at % len(other.first)] for at in range(len(texts))]}


def content_words(texts: Iterable[str]) -> set[str]:
    """Return their words of four letters or more, in lower case, that are no stop words."""
    return {word for text in texts for word in WORD.findall(text.lower()) if word not in ENGLISH_STOP_WORDS}


def typos(text: str, rng: np.random.Generator) -> str:
    """Return the text with a letter swapped, dropped or doubled in a third of its words of four letters or more."""

    def misspelt(match: re.Match[str]) -> str:
        word, at = match[0], int(rng.integers(len(match[0]) - 1))
        pair = (word[at + 1] + word[at], word[at + 1], 2 * word[at] + word[at + 1])[rng.integers(3)]
        return word[:at] + pair + word[at + 2 :] if rng.random() < SHARE else word

    return WORD.sub(misspelt, text)


def new_words(text: str, words: Sequence[str], rng: np.random.Generator) -> str:
    """Return the text with a third of its content words replaced by some of `words`."""

    def replaced(match: re.Match[str]) -> str:
        kept = match[0].lower() in ENGLISH_STOP_WORDS or rng.random() >= SHARE
        return match[0] if kept else words[int(rng.integers(len(words)))]

    return WORD.sub(replaced, text)


def unlabelled(outputs: Outputs) -> Outputs:
    """Return the outputs without labels."""
    return replace(outputs, labels=np.full(len(outputs.labels), np.nan))


def planned(whole: Material, rows: Index, horizon: int) -> dict[str, Cascade]:
    """Return what is planned on these held-out texts, with no label and with labels that are bought."""
    config, ours = PlanConfig(drop=DROP, horizon=horizon, labels=LABELS), subset(whole.ours.outputs, rows)
    known = {UNLABELLED: unlabelled(ours), BOUGHT: to_buy(ours, config)}
    return {name: make(each, whole.ours.measured, config, whole.pair, whole.device) for name, each in known.items()}


def figures(candidate: Candidate, data: EvaluationData) -> dict[str, float]:
    """Return what a candidate does with texts: shares of all or of the early ones, and seconds over the large model's."""
    shown, large = show(candidate, data), level_step(data, len(data.levels) - 1).correct_R.mean()
    early, differ = 1 - evaluate(candidate, data).share(len(candidate.levels) - 1), 1 - shown.agreement
    both = (math.nan, math.nan) if np.isnan(data.outputs.labels).any() else (shown.accuracy, float(large))
    shares = {"early": early, "differ": differ, "of early": differ / max(early, 1e-9)}
    return shares | {"accuracy": both[0], "large model": both[1], "seconds": shown.seconds}


def audited(cascade: Cascade, before: EvaluationData, after: EvaluationData) -> dict[str, Any]:
    """Return when the audit leaves the default, and what is served once it leaves no candidate any more."""
    default = served = cascade.candidates[0]
    was, now = (figures(default, data) for data in (before, after))
    alarm_S = alarms([(BEFORE, was["of early"]), (AFTER, now["of early"])], proven(default) or 0.0)
    late_S, broken, then = alarm_S[alarm_S > BEFORE] - BEFORE, set[int](), now
    noticed = median = float(np.median(late_S)) if len(late_S) else math.nan
    while math.isfinite(median):
        broken.add(cascade.candidates.index(served))
        served = cascade.candidates[safest(cascade, broken)]
        then = figures(served, after)
        median = float(np.median(alarms([(AFTER, then["of early"])], proven(served) or 0.0)))
    row: dict[str, Any] = {"proven": 1 - (proven(default) or 0.0), "before": was["of early"], "after": now["of early"]}
    row |= {"false alarms": 1 - len(late_S) / STREAMS, "audited until noticed": noticed, "then served": served.name}
    return row | {"differ without": now["differ"], "differ then": then["differ"], "seconds then": then["seconds"]}


def alarms(stretches: Sequence[tuple[int, float]], promised: float, streams: int = STREAMS) -> Floats:
    """Return [S] after how many audited answers the bet breaks; inf: it never does.

    `stretches`: so many answers, of which this share differ; `promised`: the share that agree, 0: nothing is promised.
    """
    rng, alarm_S = np.random.default_rng(0), np.full(streams, np.inf)
    wealth_SB = np.tile(initial_wealth(), (streams, 1))
    for number, rate in enumerate(rate for count, rate in stretches for _ in range(count)):
        wealth_SB = bet(wealth_SB, number, rng.random(streams) < rate, promised)
        alarm_S[(evidence(wealth_SB, number + 1) >= TARGET) & np.isinf(alarm_S)] = number + 1
    return alarm_S


def doubled(streams: int) -> tuple[list[Target], list[dict[str, float]]]:
    """Return the targets of the stream whose differing answers double, and how it went."""
    promised, targets, rows = clopper_pearson(np.arange(PROVEN_ON) >= SAME * PROVEN_ON, 0.95), list[Target](), []
    for before in CHANGES:
        alarm_S = alarms([(before, SAME), (AFTER, DOUBLED)], promised, streams)
        noticed = float(np.median(alarm_S[alarm_S > before] - before))
        name = f"audited until twice as many answers differ is noticed, median, after {before:,}"
        targets.append(Target(name, noticed, "<=", 2000))
        rows.append({"differ": DOUBLED, "audited before": before, "alarms": float(np.isfinite(alarm_S).mean())})
    for rate in (SAME, 1 - promised):  # as before, and as much as was proven
        share = float(np.isfinite(alarms([(QUIET, rate)], promised, streams)).mean())
        rows.append({"differ": rate, "audited before": QUIET, "alarms": share})
    name = f"false alarms in 20 months, {streams} streams of {QUIET:,} audited"
    return [*targets, Target(name, rows[len(CHANGES)]["alarms"], "<=", 0.05)], rows
