"""Compares answers with labels that come later: accuracy and calibration by level, and whether a promise is broken.

Pure: answers and labels come in, figures go out, with no clock, HTTP or disk. Only the `memory` newest answers can still be
labelled, and only for `seconds`. What changed since the last `drain` may be kept elsewhere, and given back after a restart
with `restore`.

The promise of a candidate is an accuracy. It is tested again with every label, and an ordinary test would sooner or
later raise a false alarm. So the test is an e-process, a bet against the promise (pliant/outcomes/record.py).

A broken promise raises an alarm, which keeps the labels that led to it, and who reported them. Others hear of it once it is
broken without any one tenant's labels, too. An alarm that is taken back (the labels were false) lets the test of its
candidate start anew.

The bound is for one (task, version, candidate). It assumes that labelled answers are no worse than the others: if
labels only come with complaints, any promise breaks.
"""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from pliant.errors import InputError
from pliant.outcomes.labels import Label, LabelRecord
from pliant.outcomes.record import Figures, Key, Record, ReportedLabel, Version

DIGEST_BYTES = 16  # of an id: far too many for two ids to have the same
MAX_RECORDS = 256  # candidates with figures; the one whose last label is oldest goes first
MAX_ALARMS = 64  # the oldest goes first
MAX_CHANGES = 20_000  # answers, and labels, that wait to be drained; the oldest are lost, and no more than that is
LISTED = 10  # classes that an error names


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer as it was given."""

    task: str
    version: Version  # of what was served for the task
    candidate: str  # how it was answered, as far as a promise depends on it: of tokens, the operating point
    level: str  # name of the model that answered
    label: Label  # the class, or in a regression the value
    confidence: float
    promised: float | None  # the promised accuracy; None: no promise covers it, as a cascade that was cut short
    tolerance: float = 0.0  # regression: a value this near is correct
    classes: tuple[str, ...] = ()  # empty: a regression
    tenant: str = ""  # whose request it was
    former_levels: tuple[str, ...] = ()  # names of the models that ran before the one that answered
    former: tuple[tuple[Label, float], ...] = ()  # the label and the confidence that each of these gave

    @property
    def key(self) -> Key:
        return self.task, self.version, self.candidate

    def correct(self, label: Label) -> bool:
        """Return whether the answer was correct.

        Raises `InputError` for a label that is no class of the task, or in a regression no finite number.
        """
        if self.classes:
            if label not in self.classes:
                more = len(self.classes) - LISTED
                listed = ", ".join(self.classes[:LISTED]) + (f" and {more} more" if more > 0 else "")
                raise InputError("label", repr(label)[:80], f"one of {listed}")
            return label == self.label
        if isinstance(label, str | bool) or not math.isfinite(label):
            raise InputError("label", repr(label)[:80], "a finite number, as the task is a regression")
        return abs(label - float(self.label)) <= self.tolerance


class Row(NamedTuple):
    """An answer as it is kept. Labels are numbers: the place of a class, or in a regression the value."""

    sequence: int  # 0 for the first answer of all, counted on over restarts
    digest: bytes  # of its id
    at: float
    answer: float  # the label given
    confidence: float
    common: Answered  # what it shares with others: all but label, confidence and `former`
    former: tuple[float, ...] = ()  # label and confidence of each former level, in turn
    label: float = math.nan  # the label reported; NaN: none yet

    @property
    def answered(self) -> Answered:
        """The answer as it was given."""
        labels = [_label(self.common, number) for number in self.former[::2]]
        former = tuple(zip(labels, self.former[1::2], strict=True))
        return replace(self.common, label=_label(self.common, self.answer), confidence=self.confidence, former=former)

    @property
    def reported(self) -> Label | None:
        """The label that was reported; None if none was."""
        return None if math.isnan(self.label) else _label(self.common, self.label)


def number_of(answered: Answered, label: Label) -> float:
    """Return a label as a number: the place of a class, or in a regression the value."""
    return float(answered.classes.index(str(label)) if answered.classes else label)


def _label(answered: Answered, number: float) -> Label:
    """Return the label that `number_of` turned into this number."""
    return answered.classes[int(number)] if answered.classes else number


@dataclass(frozen=True, slots=True)
class Report:
    """Who reported a label, and when, in seconds since 1970."""

    tenant: str = ""
    key: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Alarm:
    """A promise that broke: the figures at that time, and the latest labels that led to it."""

    id: int
    at: float  # seconds since 1970
    figures: Figures
    labels: tuple[ReportedLabel, ...]
    taken_back: Report | None = None


@dataclass(frozen=True, slots=True)
class LabelResult:
    """What a label led to. Only a "counted" one changes figures; `broke`: whether it broke the promise, and `refuted`
    whether that is now so without any one tenant's labels."""

    status: Literal["counted", "repeated", "contradicted", "unknown"]
    answered: Answered | None = None
    correct: bool | None = None
    broke: bool = False
    refuted: bool = False


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed since the last `drain`."""

    answers: tuple[Row, ...] = ()
    labels: tuple[tuple[int, float], ...] = ()  # sequence of an answer, and its label as a number
    taken: tuple[LabelRecord, ...] = ()  # the same labels in full
    records: Mapping[Key, Record | None] = field(default_factory=dict)  # the last labelled last; None: gone
    alarms: tuple[Alarm, ...] | None = None  # all; None: unchanged


class Tracker:
    """Keeps the `memory` newest answers for `seconds`, takes their labels, counts, and raises alarms.

    Every `now` is in seconds on one clock. It may be set back: then answers are kept for longer.
    """

    def __init__(self, memory: int = 100_000, seconds: float = math.inf, recorded: bool = False) -> None:
        """`recorded`: whether changes are kept until they are drained."""
        self._memory, self._seconds, self._recorded = memory, seconds, recorded
        self._rows: OrderedDict[bytes, Row] = OrderedDict()  # by the digest of the id, the oldest first
        self._remembered = 0  # answers so far, also those of former runs
        self._alarms: OrderedDict[int, Alarm] = OrderedDict()
        self._raised = 0
        self._records: OrderedDict[Key, Record] = OrderedDict()
        self._new_answers: deque[Row] = deque(maxlen=MAX_CHANGES)
        self._new_labels: deque[tuple[int, float, LabelRecord]] = deque(maxlen=MAX_CHANGES)
        self._changed: dict[Key, None] = {}  # in order of their last label
        self._alarms_changed = False

    def remember(
        self,
        id: str,
        kind: Answered,
        label: Label,
        confidence: float,
        now: float = 0.0,
        former: tuple[float, ...] = (),
    ) -> None:
        """Keep an answer, and forget the oldest ones if there are too many, or if they are too old.

        `kind`: what it shares with answers like it; `former`: see `Row`. The id may be any text, also one that UTF-8 cannot
        hold.
        """
        row = Row(self._remembered, _digest(id), now, number_of(kind, label), confidence, kind, former)
        self._keep(row)
        if self._recorded:
            self._new_answers.append(row)
        self._forget(now)

    def __len__(self) -> int:
        """Return how many answers are kept."""
        return len(self._rows)

    def remembered(self, id: str, now: float = 0.0) -> Row | None:
        """Return an answer that is still kept."""
        self._forget(now)
        return self._rows.get(_digest(id))

    def take(self, id: str, label: Label, report: Report, tenant: str | None = "") -> LabelResult:
        """Count the label of an answer. A second label for the same answer changes nothing. `tenant`: see `Record.add`.

        Raises `InputError` as `Answered.correct` does.
        """
        row = self.remembered(id, report.at)
        if row is None:
            return LabelResult("unknown")
        answered, former = row.answered, row.reported
        correct = answered.correct(label)
        if former is not None:
            same = former == label
            return LabelResult("repeated" if same else "contradicted", answered, answered.correct(former))
        number, record = number_of(answered, label), self._record_of(answered.key)
        self._rows[row.digest] = row._replace(label=number)
        before = record.refuted
        reported = ReportedLabel(id, label, correct, report.tenant, report.key, report.at)
        broke = record.add(answered.level, answered.confidence, answered.promised, reported, tenant)
        if self._recorded:
            levels = dict(zip(answered.former_levels, answered.former, strict=False))
            taken = LabelRecord(
                *(id, *answered.key),
                level=answered.level,
                predicted=answered.label,
                confidence=answered.confidence,
                former=levels,
                label=label,
                correct=correct,
                tenant=report.tenant,
                key=report.key,
                at=report.at,
                answered_at=row.at,
            )
            self._new_labels.append((row.sequence, number, taken))
            self._change(answered.key)
        if broke:
            self._raised += 1
            figures = record.figures(answered.key)
            self._alarms[self._raised] = Alarm(self._raised, report.at, figures, tuple(record.reports))
            self._alarms_changed = True
            if len(self._alarms) > MAX_ALARMS:
                self._alarms.popitem(last=False)
        return LabelResult("counted", answered, correct, broke, record.refuted and not before)

    def alarms(self) -> list[Alarm]:
        """Return the latest alarms, the oldest first."""
        return list(self._alarms.values())

    def take_back(self, id: int, report: Report) -> Alarm | None:
        """Take an alarm back: the figures of its candidate start anew. Return it; None for an unknown one."""
        alarm = self._alarms.get(id)
        if alarm is None or alarm.taken_back is not None:
            return alarm
        self._alarms[id], self._alarms_changed = replace(alarm, taken_back=report), True
        key = alarm.figures.task, alarm.figures.version, alarm.figures.candidate
        self._records.pop(key, None)
        self._change(key)
        return self._alarms[id]

    def figures(self) -> list[Figures]:
        """Return the figures of every candidate with labels; the one labelled last is at the end."""
        return [record.figures(key) for key, record in self._records.items()]

    def figures_of(self, key: Key) -> Figures:
        """Return the figures of one candidate."""
        return self._record_of(key).figures(key)

    def drain(self) -> Changes:
        """Return what changed since the last time. Another thread may call it while answers are remembered, but not
        while a label is taken or an alarm taken back."""
        labels = [self._new_labels.popleft() for _ in range(len(self._new_labels))]
        # After the labels, so that every label's answer is among these or came before.
        answers = tuple(self._new_answers.popleft() for _ in range(len(self._new_answers)))
        changed, self._changed = self._changed, {}
        records = {key: record.copy() if (record := self._records.get(key)) else None for key in changed}
        alarms = tuple(self._alarms.values()) if self._alarms_changed else None
        self._alarms_changed = False
        marks, taken = tuple(label[:2] for label in labels), tuple(label[2] for label in labels)
        return Changes(answers, marks, taken, records, alarms)

    def restore(self, answers: Iterable[Row], records: Mapping[Key, Record], alarms: Iterable[Alarm]) -> None:
        """Go on where a former run ended. Called before the first answer."""
        for row in answers:
            self._keep(row)
        self._records.update(list(records.items())[-MAX_RECORDS:])
        for alarm in list(alarms)[-MAX_ALARMS:]:
            self._alarms[alarm.id], self._raised = alarm, max(self._raised, alarm.id)

    def check(self) -> None:
        """Raises AssertionError if more is kept than allowed, or answers are out of order."""
        sequences = [row.sequence for row in self._rows.values()]
        assert len(sequences) <= self._memory, "too many answers"
        assert sequences == sorted(set(sequences)), "answers are out of order"
        assert len(self._records) <= MAX_RECORDS, "too many records"
        assert len(self._alarms) <= MAX_ALARMS, "too many alarms"

    def _keep(self, row: Row) -> None:
        """Keep a row, in the place of the oldest if there is no room."""
        self._rows.pop(row.digest, None)
        self._rows[row.digest] = row
        self._remembered = row.sequence + 1
        if len(self._rows) > self._memory:
            self._rows.popitem(last=False)

    def _forget(self, now: float) -> None:
        while self._rows and now - next(iter(self._rows.values())).at > self._seconds:
            self._rows.popitem(last=False)

    def _record_of(self, key: Key) -> Record:
        record = self._records.setdefault(key, Record())
        self._records.move_to_end(key)
        if len(self._records) > MAX_RECORDS:
            self._change(self._records.popitem(last=False)[0])
        return record

    def _change(self, key: Key) -> None:
        if self._recorded:
            self._changed.pop(key, None)
            self._changed[key] = None


def _digest(id: str) -> bytes:
    return hashlib.blake2b(id.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()
