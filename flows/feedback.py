"""What a flow learns from: inputs that a service kept, with the labels that its clients reported. Knows no system.

What protects the next champion from strangers: a label teaches only if it is of an answer that its tenant got, if its
client had a key (or its tenant is trusted), and where no tenant that is not trusted has more than a quarter of a task's
labels, so that below four such tenants nobody teaches anything (pliant/outcomes/labels.py). These shares are taken over the
labels whose input is kept and which the flow can use, but for those that are the service's own answers: nobody gains a
larger one by crowding out the inputs of others, or by being the latest.
Where a service says which labels it wants, others only train. Those that it wanted stand for unequally many answers: what
plans and judges is drawn from them by these weights, so that it is as the traffic is. Whatever trains is not weighted, which
would lose rows and hardly change what a network learns (Byrd and Lipton, ICML 2019).
A row is fitted, planned or tested with by a hash of what was sent, so no model is tested on what it, or a former one, was
trained with. What passes all that still has to pass the flow's gate.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from pliant.errors import InputError
from pliant.fairness import trusted_tenants
from pliant.outcomes.echoes import echoing
from pliant.outcomes.files import INPUTS, KeptInput, read_inputs, read_labels
from pliant.outcomes.labels import LabelRecord, teachable
from pliant.settings import Count, Positive

logger = logging.getLogger("pliant")

TRUSTED = "PLIANT_TRUSTED_LABELS"
DAY = 86_400.0  # seconds
TEST_SHARE, PROFILING_SHARE = 0.2, 0.2  # of all, and of the rest: as training/data.py splits

Part = Literal["fit", "profiling", "test"]


@dataclass(frozen=True, slots=True)
class FeedbackConfig:
    """`outcomes`: folder of a service's outcomes, such as .pliant/outcomes/tokens; None: nothing is learnt from labels.

    `trusted`: tenants whose labels teach without limit, as in PLIANT_TRUSTED_LABELS; None: that variable of this process.
    """

    outcomes: Annotated[str, Field(min_length=1)] | None = None
    trusted: str | None = None
    days: Positive = 30.0  # that a label teaches
    least: Count = 40  # labels of a task below which they are left alone
    most: int = 5000  # labels of a task: the newest are taken

    def __post_init__(self) -> None:
        if self.most < self.least:
            raise InputError("feedback.most", self.most, f"at least feedback.least, {self.least}")


@dataclass(frozen=True, slots=True)
class Lesson:
    """What was sent for an answer, and the label that was reported for it."""

    input: KeptInput
    record: LabelRecord

    @property
    def part(self) -> Part:
        """What the row is for: one whose label came unasked, as of wrong answers alone, neither plans nor judges."""
        return part_of_input(self.input) if self.record.weight else "fit"


def lessons(
    config: FeedbackConfig,
    task: str,
    usable: Callable[[Lesson], bool] = lambda _: True,
    clock: Callable[[], float] = time.time,
    environment: Mapping[str, str] = os.environ,
) -> tuple[Lesson, ...]:
    """Return the labels of a task that may teach and whose inputs are kept, in the order in which they were reported.

    They are at most `config.most`, of every tenant its newest, and none where they are fewer than `config.least`. What is
    not `usable` (another form of input, a class that the task does not have) counts for nobody. The log says how many were
    passed over, and why nothing is learnt. Raises `InputError` for a file that cannot be read.
    """
    if config.outcomes is None:
        return ()
    folder = Path(config.outcomes)
    if not folder.is_dir():
        logger.warning("nothing is learnt from labels of %s: there is no folder %s", task, folder)
        return ()
    records = [record for record in read_labels(folder, clock() - DAY * config.days) if record.task == task]
    kept = _kept(folder, records)
    sound = [lesson for lesson in kept if usable(lesson)]
    if len(sound) < len(kept):
        logger.warning("labels of %s passed over, as the flow cannot use them: %d", task, len(kept) - len(sound))
    echoes = echoing(lesson.record for lesson in sound)
    for tenant, labels in echoes.items():
        logger.warning(
            "labels of %s passed over, as those of %s seem to be the service's own answers (noticed after %d)",
            *(task, tenant or "clients without a key", labels),
        )
    trusted = tenants(config, environment)
    sound = _drawn([lesson for lesson in sound if lesson.record.tenant not in echoes], trusted)
    chosen = _teach(_newest(_teach(sound, trusted), config.most), trusted)
    if len(chosen) < config.least:
        if records:
            logger.warning(
                "nothing is learnt from labels of %s: %d of %d may teach with an input that is kept, and %d are needed",
                *(task, len(chosen), len(records), config.least),
            )
        return ()
    return chosen


def kept_inputs(config: FeedbackConfig, task: str, clock: Callable[[], float] = time.time) -> list[KeptInput]:
    """Return the inputs of a task that a service kept, with labels or without: the newest `config.most`, oldest first.

    Raises `InputError` for a file that cannot be read.
    """
    if config.outcomes is None:
        return []
    since = clock() - DAY * config.days
    kept = (each for each in read_inputs(Path(config.outcomes)) if each.task == task and _is_sound(each))
    return [each for each in kept if each.at >= since][-config.most :]


def tenants(config: FeedbackConfig, environment: Mapping[str, str] = os.environ) -> frozenset[str]:
    """Return the tenants that are trusted; "" stands for clients without a key."""
    return trusted_tenants(environment.get(TRUSTED, "") if config.trusted is None else config.trusted)


def part_of(name: str) -> Part:
    """Return the split of what has this name: the same on every night, in about the shares of `pliant.training.data.split`.

    An answer's id is a name. A digest of the input is a better one, as the same input may come under many ids.
    """
    place = _place(name)
    if place < TEST_SHARE:
        return "test"
    return "profiling" if place < TEST_SHARE + (1 - TEST_SHARE) * PROFILING_SHARE else "fit"


def _place(name: str) -> float:
    """Return a number from 0 to 1 that follows from the name, as if it were drawn uniformly."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def part_of_input(kept: KeptInput) -> Part:
    """Return the split of an input, by its content: an input that was sent twice is in one split only."""
    return part_of(hashlib.sha256(kept.form.encode() + b"\0" + kept.content).hexdigest())


def _kept(folder: Path, records: Sequence[LabelRecord]) -> list[Lesson]:
    """Return the labels whose inputs are kept, in the order of the labels."""
    path = folder / INPUTS
    if not records or not path.is_file() or not path.stat().st_size:
        return []  # a service makes the file empty, and then its table
    task = {record.id: record.task for record in records}
    inputs: defaultdict[str, list[KeptInput]] = defaultdict(list)
    passed_over = 0
    for kept in read_inputs(folder, task):
        if kept.task != task[kept.id]:
            continue  # a client may choose an id twice, for two tasks
        if _is_sound(kept):
            inputs[kept.id].append(kept)
        else:
            passed_over += 1
    if passed_over:
        logger.warning("inputs in %s passed over, as they are none: %d", folder, passed_over)
    # Of an id that was chosen twice, the input that came with the answer which was labelled.
    pairs = ((min(inputs[r.id], key=lambda kept: abs(kept.at - r.answered_at)), r) for r in records if r.id in inputs)
    return [Lesson(kept, record) for kept, record in pairs]


def _is_sound(kept: KeptInput) -> bool:
    """Whether a row holds an input: SQLite stores anything anywhere."""
    at, form, content = kept.at, kept.form, kept.content
    return isinstance(at, float) and isinstance(form, str) and isinstance(content, bytes) and bool(content)


def _drawn(lessons: Sequence[Lesson], trusted: Collection[str]) -> list[Lesson]:
    """Return the lessons, those with a weight drawn by it, the same on every night. Of the others the fit split only trains.

    The heaviest stays, of all trusted tenants or of one other: nobody displaces others' labels by a heavy one.
    """
    heaviest: defaultdict[str | None, float] = defaultdict(float)
    for lesson in lessons:
        whose = None if lesson.record.tenant in trusted else lesson.record.tenant
        heaviest[whose] = max(heaviest[whose], lesson.record.weight)
    drawn = []
    for lesson in lessons:
        record = lesson.record
        most = heaviest[None if record.tenant in trusted else record.tenant]
        if not record.weight or _place(f"weight of {record.id}") * most <= record.weight:
            drawn.append(lesson)
        elif part_of_input(lesson.input) == "fit":
            drawn.append(replace(lesson, record=replace(record, weight=0.0)))
    if left := sum(bool(lesson.record.weight) for lesson in lessons) - sum(bool(each.record.weight) for each in drawn):
        logger.info("labels of %s that neither plan nor judge, as others stand for more answers: %d", record.task, left)
    return drawn


def _teach(lessons: Sequence[Lesson], trusted: Collection[str]) -> tuple[Lesson, ...]:
    """Return the lessons that may teach. `teachable` returns the very records that it is given."""
    lesson_of = {id(lesson.record): lesson for lesson in lessons}
    return tuple(lesson_of[id(record)] for record in teachable((lesson.record for lesson in lessons), trusted))


def _newest(lessons: Sequence[Lesson], most: int) -> list[Lesson]:
    """Return at most `most` lessons: of every tenant its newest, in proportion to all that it has.

    The newest of all would be those of who floods the service just before the flow runs.
    """
    if len(lessons) <= most:
        return list(lessons)
    counts = Counter(lesson.record.tenant for lesson in lessons)
    room = {tenant: count * most // len(lessons) for tenant, count in counts.items()}
    latest: list[Lesson] = []
    for lesson in reversed(lessons):
        if room[lesson.record.tenant]:
            room[lesson.record.tenant] -= 1
            latest.append(lesson)
    return latest[::-1]
