"""Compares answers with labels that come later: accuracy and calibration by level, and whether a promise is broken.

Pure: answers and labels come in, figures go out, with no clock, HTTP or disk. Only the `memory` newest answers can still be
labelled, and only for `seconds`. What changed since the last `drain` may be kept elsewhere, and given back after a restart
with `restore`.

The promise of a candidate is an accuracy. It is tested again with every label, and an ordinary test would sooner or
later raise a false alarm. So the test is an e-process, a bet against the promise (pliant/outcomes/betting.py).

A broken promise raises an alarm, which keeps the labels that led to it, and who reported them. Others hear of it once it is
broken without any one tenant's labels, too (pliant/outcomes/record.py). An alarm that is taken back
(the labels were false) lets the test of its candidate start anew.

The bound is for one (task, version, candidate). It assumes that labelled answers are no worse than the others: if
labels only come with complaints, any promise breaks.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pliant.outcomes.answered import Answered, Label, Row, digest_of, number_of
from pliant.outcomes.figures import NOBODY, Alarm, Figures, Key, LabelResult, Report, ReportedLabel, Status
from pliant.outcomes.labels import LabelRecord
from pliant.outcomes.record import Record, RecordState

MAX_RECORDS = 256  # candidates with figures; the one whose last label is oldest goes first
MAX_ALARMS = 64  # the oldest goes first
MAX_COMMONS = 4096  # kinds of answers, of each of which what they share is kept once
MAX_CHANGES = 20_000  # answers, and labels, that wait to be drained; the oldest are lost, and no more than that is


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed since the last `drain`."""

    answers: tuple[Row, ...] = ()
    labels: tuple[tuple[int, float], ...] = ()  # sequence of an answer, and its label as a number
    taken: tuple[LabelRecord, ...] = ()  # the same labels in full
    records: Mapping[Key, RecordState | None] = field(default_factory=dict)  # the last labelled last; None: gone
    alarms: tuple[Alarm, ...] | None = None  # all; None: unchanged


@dataclass(frozen=True, slots=True)
class Restored:
    """What a former run left."""

    answers: Iterable[Row] = ()
    records: Mapping[Key, Record] = field(default_factory=dict)
    alarms: tuple[Alarm, ...] = ()


class Tracker:
    """Keeps the `memory` newest answers for `seconds`, takes their labels, counts, and raises alarms.

    Every `now` is in seconds on one clock. It may be set back: then answers are kept for longer.
    """

    def __init__(self, memory: int = 100_000, seconds: float = math.inf, recorded: bool = False) -> None:
        """`recorded`: whether changes are kept until they are drained."""
        self._memory, self._seconds = memory, seconds
        self._rows: OrderedDict[bytes, Row] = OrderedDict()  # by the digest of the id, the oldest first
        self._commons: dict[Answered, Answered] = {}  # what answers share, so that equal ones are one object
        self._remembered = 0  # answers so far, also those of former runs
        self._alarms: OrderedDict[int, Alarm] = OrderedDict()
        self._raised = 0
        self._records: OrderedDict[Key, Record] = OrderedDict()
        self._recorded = recorded
        self._new_answers: deque[Row] = deque(maxlen=MAX_CHANGES)
        self._new_labels: deque[tuple[int, float, LabelRecord]] = deque(maxlen=MAX_CHANGES)
        self._changed: dict[Key, None] = {}  # in order of their last label
        self._alarms_changed = False

    def remember(self, id: str, answered: Answered, now: float = 0.0) -> None:
        """Keep an answer, and forget the oldest ones if there are too many, or if they are too old."""
        common = replace(answered, label="", confidence=0.0, former=())
        if len(self._commons) >= MAX_COMMONS:
            self._commons.clear()
        common = self._commons.setdefault(common, common)
        former = tuple(number for label, share in answered.former for number in (number_of(answered, label), share))
        self.remember_number(id, common, number_of(answered, answered.label), answered.confidence, now, former)

    def remember_number(
        self, id: str, common: Answered, answer: float, confidence: float, now: float, former: tuple[float, ...] = ()
    ) -> None:
        """Keep an answer as `remember` does; faster, where `common` and the label as a number are at hand. See `Row`."""
        row = Row(self._remembered, digest_of(id), now, answer, confidence, common, former)
        self._keep(row)
        if self._recorded:
            self._new_answers.append(row)
        self._forget(now)

    def __len__(self) -> int:
        """Return how many answers are kept."""
        return len(self._rows)

    def remembered(self, id: str) -> Row | None:
        """Return an answer that is still kept."""
        return self._rows.get(digest_of(id))

    def answered(self, id: str, now: float = 0.0) -> Answered | None:
        """Return an answer that is still kept."""
        row = self._row(id, now)
        return None if row is None else row.answered

    def take(self, id: str, label: Label, report: Report = NOBODY, tenant: str | None = "") -> LabelResult:
        """Count the label of an answer. A second label for the same answer changes nothing. `tenant`: see `Record.add`.

        Raises `InputError` as `Answered.correct` does.
        """
        row = self._row(id, report.at)
        if row is None:
            return LabelResult("unknown")
        answered, former = row.answered, row.reported
        correct = answered.correct(label)
        if former is not None:
            status: Status = "repeated" if former == label else "contradicted"
            return LabelResult(status, answered, answered.correct(former))
        number, record = number_of(answered, label), self._record_of(answered)
        self._rows[row.digest] = row._replace(label=number)
        before = record.refuted
        broke = record.add(answered, ReportedLabel(id, label, correct, report), tenant)
        if self._recorded:
            taken = _record(id, answered, label, correct, report, row.at)
            self._new_labels.append((row.sequence, number, taken))
            self._change(_key(answered))
        if broke:
            self._raise_alarm(self.figures_of(answered), record, report.at)
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

    def figures_of(self, answered: Answered) -> Figures:
        """Return the figures of the candidate that gave an answer."""
        return self._record_of(answered).figures(_key(answered))

    def drain(self) -> Changes:
        """Return what changed since the last time. Another thread may call it while answers are remembered, but not
        while a label is taken or an alarm taken back."""
        labels = [self._new_labels.popleft() for _ in range(len(self._new_labels))]
        # After the labels, so that every label's answer is among these or came before.
        answers = tuple(self._new_answers.popleft() for _ in range(len(self._new_answers)))
        changed, self._changed = self._changed, {}
        records = {key: record.state() if (record := self._records.get(key)) else None for key in changed}
        alarms = tuple(self._alarms.values()) if self._alarms_changed else None
        self._alarms_changed = False
        marks, taken = tuple(label[:2] for label in labels), tuple(label[2] for label in labels)
        return Changes(answers, marks, taken, records, alarms)

    def restore(self, restored: Restored) -> None:
        """Go on where a former run ended. Called before the first answer."""
        for row in restored.answers:
            self._keep(row)
        self._records.update(list(restored.records.items())[-MAX_RECORDS:])
        for alarm in restored.alarms[-MAX_ALARMS:]:
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

    def _row(self, id: str, now: float) -> Row | None:
        self._forget(now)
        return self.remembered(id)

    def _forget(self, now: float) -> None:
        while self._rows and now - next(iter(self._rows.values())).at > self._seconds:
            self._rows.popitem(last=False)

    def _raise_alarm(self, figures: Figures, record: Record, now: float) -> None:
        self._raised += 1
        self._alarms[self._raised] = Alarm(self._raised, now, figures, tuple(record.reports))
        self._alarms_changed = True
        if len(self._alarms) > MAX_ALARMS:
            self._alarms.popitem(last=False)

    def _record_of(self, answered: Answered) -> Record:
        key = _key(answered)
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = Record()
        self._records.move_to_end(key)
        if len(self._records) > MAX_RECORDS:
            self._change(self._records.popitem(last=False)[0])
        return record

    def _change(self, key: Key) -> None:
        if self._recorded:
            self._changed.pop(key, None)
            self._changed[key] = None


def _key(answered: Answered) -> Key:
    return answered.task, answered.version, answered.candidate


def _record(
    id: str, answered: Answered, label: Label, correct: bool, report: Report, answered_at: float
) -> LabelRecord:
    return LabelRecord(
        id=id,
        task=answered.task,
        version=answered.version,
        candidate=answered.candidate,
        level=answered.level,
        predicted=answered.label,
        confidence=answered.confidence,
        former=dict(zip(answered.former_levels, answered.former, strict=False)),
        label=label,
        correct=correct,
        tenant=report.tenant,
        key=report.key,
        at=report.at,
        answered_at=answered_at,
    )
