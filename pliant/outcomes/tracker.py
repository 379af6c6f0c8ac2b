"""Compares answers with labels that come later: accuracy and calibration by level, and whether a promise is broken.

Pure: answers and labels come in, figures go out, with no clock, HTTP or disk. The `memory` newest answers can still be
labelled, those that were drawn, and those that `recall` brings back, and only for `seconds`. What changed since the last
`drain` may be kept elsewhere, and given back after a restart with `restore`.

Labels that come unasked may be of wrong answers alone. So some answers of each task and tenant are drawn when they are
given, and `wanted` lists them. Where it has listed a tenant's, labels count for those alone, by the inverse probability
(Horvitz and Thompson, 1952), and only if they are reported after that: those of wrong answers may come first.

The promise of a candidate is an accuracy. It is tested again with every label, and an ordinary test would sooner or
later raise a false alarm. So the test is an e-process, a bet against the promise (pliant/betting.py).

A broken promise raises an alarm, which keeps the labels that led to it, and who reported them. Others hear of it once it is
broken without any one tenant's labels, too. An alarm that is taken back (the labels were false) lets the test of its
candidate start anew.

The bound is for one (task, version, candidate). It assumes that labelled answers are no worse than the others: if labels
only come with complaints, and nobody labels what is wanted, any promise breaks.
"""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal, NamedTuple

from pliant.errors import InputError
from pliant.outcomes.labels import DECLARED, Label, LabelRecord, slices_of
from pliant.outcomes.record import FLOOR, MAX_DECLARED, Figures, Key, Record, ReportedLabel, Version

DIGEST_BYTES = 16  # of an id: far too many for two ids to have the same
MAX_RECORDS = 256  # candidates with figures; the one whose last label is oldest goes first
MAX_ALARMS = 64  # the oldest goes first
MAX_CHANGES = 20_000  # answers, and labels, that wait to be drained; the oldest are lost, and no more than that is
LISTED = 10  # classes that an error names
DAY = 86_400.0  # seconds
ASKED = 30 * DAY  # for which a tenant's labels count for listed answers alone, after the last were listed
WAITED = 7 * DAY  # that a listed answer waits for its label
MAX_DRAWN = 20_000  # answers at hand; the oldest go first
MAX_RECALLED = 20_000
MAX_RATES = 4096  # tasks of tenants


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
    id: str = ""  # of one that was drawn
    inclusion: float = 0.0  # the probability with which it was drawn; 0: it was not, or its label has counted
    listed: float = 0.0  # when its label was asked for, in seconds since 1970; 0: never

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
    """What a label led to: a first one is "taken". `counted`: whether it changed figures; `broke`: whether it broke the
    promise or a floor, and `refuted` whether that is now so without any one tenant's labels."""

    status: Literal["taken", "repeated", "contradicted", "unknown"]
    answered: Answered | None = None
    correct: bool | None = None
    counted: bool = False
    broke: bool = False
    refuted: bool = False


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed since the last `drain`."""

    answers: tuple[Row, ...] = ()
    labels: tuple[tuple[int, float], ...] = ()  # sequence of an answer, and its label as a number
    taken: tuple[LabelRecord, ...] = ()  # the same labels in full
    drawn: tuple[Row, ...] = ()  # answers that were drawn or listed, or are no longer
    records: Mapping[Key, Record | None] = field(default_factory=dict)  # the last labelled last; None: gone
    alarms: tuple[Alarm, ...] | None = None  # all; None: unchanged

    def then(self, later: Changes) -> Changes:
        """Return what changed in all: of answers, and of labels, the latest `MAX_CHANGES`."""
        records = {key: record for key, record in self.records.items() if key not in later.records}
        return Changes(
            answers=(self.answers + later.answers)[-MAX_CHANGES:],
            labels=(self.labels + later.labels)[-MAX_CHANGES:],
            taken=(self.taken + later.taken)[-MAX_CHANGES:],
            drawn=(self.drawn + later.drawn)[-MAX_CHANGES:],
            records={**records, **later.records},
            alarms=self.alarms if later.alarms is None else later.alarms,
        )


class Tracker:
    """Keeps the `memory` newest answers for `seconds`, takes their labels, counts, and raises alarms.

    Every `now` is in seconds on one clock. It may be set back: then answers are kept for longer.
    """

    def __init__(
        self,
        memory: int = 100_000,
        seconds: float = math.inf,
        recorded: bool = False,
        drawn: float = 0.0,
        floor: float = FLOOR,
    ) -> None:
        """`recorded`: whether changes are kept until they are drained; `drawn`: answers a day of each task and tenant;
        `floor`: see `Record.add`."""
        self._memory, self._seconds, self._recorded, self._floor = memory, seconds, recorded, floor
        self._a_day, self._random = drawn, Random()
        self._rows: OrderedDict[bytes, Row] = OrderedDict()  # by the digest of the id, the oldest first
        self._drawn: OrderedDict[bytes, Row] = OrderedDict()  # in the same order
        self._recalled: OrderedDict[bytes, Row] = OrderedDict()
        self._rates: dict[tuple[str, str], tuple[float, float]] = {}  # answers of the last day, and when that was so
        self._asked: dict[str, float] = {}  # tenant -> when answers to it were last listed
        self._remembered = 0  # answers so far, also those of former runs
        self._alarms: OrderedDict[int, Alarm] = OrderedDict()
        self._raised = 0
        self._records: OrderedDict[Key, Record] = OrderedDict()
        self._new_answers: deque[Row] = deque(maxlen=MAX_CHANGES)
        self._new_labels: deque[tuple[int, float, LabelRecord]] = deque(maxlen=MAX_CHANGES)
        self._new_drawn: deque[Row] = deque(maxlen=MAX_CHANGES)
        self._changed: dict[Key, None] = {}  # in order of their last label
        self._alarms_changed = False

    def remember(
        self, id: str, kind: Answered, label: Label, confidence: float, now: float = 0.0, former: tuple[float, ...] = ()
    ) -> None:
        """Keep an answer, and forget the oldest ones if there are too many, or if they are too old.

        `kind`: what it shares with answers like it; `former`: see `Row`. The id may be any text, also one that UTF-8 cannot
        hold.
        """
        row = Row(self._remembered, digest_of(id), now, number_of(kind, label), confidence, kind, former)
        inclusion = self._inclusion(kind, now) if self._a_day else 0.0
        if self._random.random() < inclusion:
            row = row._replace(id=id, inclusion=inclusion)
            self._new_drawn.append(row)
        self._keep(row)
        if self._recorded:
            self._new_answers.append(row)
        self._forget(now)

    def _inclusion(self, kind: Answered, now: float) -> float:
        """Return the probability with which an answer is drawn, by how many of its kind the last day had."""
        count, at = self._rates.get((kind.task, kind.tenant), (0.0, now))
        count = 1 + count * math.exp(min(0.0, at - now) / DAY)
        if len(self._rates) >= MAX_RATES:
            self._rates.clear()
        self._rates[kind.task, kind.tenant] = count, now
        return min(1.0, self._a_day / count)

    def __len__(self) -> int:
        """Return how many answers are kept."""
        return len(self._rows) + len(self._drawn)

    def remembered(self, id: str, now: float = 0.0) -> Row | None:
        """Return an answer that is still kept."""
        self._forget(now)
        digest = digest_of(id)
        row = self._rows.get(digest) or self._drawn.get(digest) or self._recalled.get(digest)
        return None if row is None or now - row.at > self._seconds else row

    def recall(self, rows: Iterable[Row]) -> None:
        """Keep further answers for the labels that come now, but for those that are kept."""
        for row in rows:
            if not any(row.digest in kept for kept in (self._rows, self._drawn, self._recalled)):
                self._recalled[row.digest] = row
        while len(self._recalled) > MAX_RECALLED:
            self._recalled.popitem(last=False)

    def wanted(self, most: int, now: float, whose: Callable[[str], bool]) -> list[Row]:
        """Return at most so many answers whose labels are asked for, the oldest first. `whose`: of which tenants.

        There are new ones where fewer than `most` wait: of those drawn since the last time so many, at random, and the
        others never.
        """
        self._forget(now)
        drawn = [row for row in self._drawn.values() if row.inclusion and whose(row.common.tenant)]
        waiting = [row for row in drawn if row.listed and now - row.listed <= WAITED][:most]
        fresh, room = [row for row in drawn if not row.listed], most - len(waiting)
        self._random.shuffle(fresh)
        share = min(1.0, room / max(1, len(fresh)))
        chosen = [row._replace(inclusion=share * row.inclusion, listed=now) for row in fresh[:room]]
        for row in chosen + [row._replace(inclusion=0.0) for row in fresh[room:] if room]:
            self._replace(row)
        self._asked |= {row.common.tenant: now for row in chosen}
        return sorted(waiting + chosen)

    def take(self, id: str, label: Label, report: Report, tenant: str | None = "", declared: str = "") -> LabelResult:
        """Take the label of an answer, and count it. `tenant`: see `Record.add`; `declared`: a slice; empty: none.

        Where answers to its tenant were listed in the last 30 days, it counts if this one was, for as many as its inclusion
        says, and then although it is the second one. Else a second label for the same answer changes nothing. Raises
        `InputError` as `Answered.correct` does, and for one slice more than a candidate may have.
        """
        row = self.remembered(id, report.at)
        if row is None:
            return LabelResult("unknown")
        answered, former = row.answered, row.reported
        correct = answered.correct(label)
        if former is not None and former != label:
            return LabelResult("contradicted", answered, answered.correct(former))
        selective = report.at - self._asked.get(answered.tenant, -math.inf) <= ASKED
        counted = bool(row.listed and row.inclusion) if selective else former is None
        if not counted and former is not None:
            return LabelResult("repeated", answered, correct)
        number, record = number_of(answered, label), self._record_of(answered.key)
        slices = slices_of(label, answered.tenant, declared)
        if declared and not record.has_room(slices[-1]):
            known = ", ".join(name.removeprefix(DECLARED) for name in record.slices if name.startswith(DECLARED))
            raise InputError("slice", repr(declared), f"one of the {MAX_DECLARED} that were declared first: {known}")
        weight = (1 / row.inclusion if selective else 1.0) if counted else 0.0
        self._replace(row._replace(label=number, inclusion=0.0 if counted else row.inclusion))
        before, broke = record.refutations, False
        if counted:
            reported = ReportedLabel(id, label, correct, report.tenant, report.key, report.at)
            given = answered.level, answered.confidence, answered.promised, reported
            broke = record.add(*given, tenant, weight, slices, self._floor)
        else:
            record.unasked += 1
        if self._recorded:
            levels = dict(zip(answered.former_levels, answered.former, strict=False))
            said = (id, *answered.key, answered.level, answered.label, answered.confidence, levels)
            taken = LabelRecord(*said, label, correct, report.tenant, report.key, report.at, row.at, weight, slices)
            self._new_labels.append((row.sequence, number, taken))
            self._change(answered.key)
        if broke:
            self._raised += 1
            figures = record.figures(answered.key)
            self._alarms[self._raised] = Alarm(self._raised, report.at, figures, tuple(record.reports))
            self._alarms_changed = True
            if len(self._alarms) > MAX_ALARMS:
                self._alarms.popitem(last=False)
        status: Literal["taken", "repeated"] = "taken" if former is None else "repeated"
        return LabelResult(status, answered, correct, counted, broke, record.refutations > before)

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
        drawn = tuple(self._new_drawn.popleft() for _ in range(len(self._new_drawn)))
        # After these, so that the answer of each is among them or came before.
        answers = tuple(self._new_answers.popleft() for _ in range(len(self._new_answers)))
        changed, self._changed = self._changed, {}
        records = {key: record.copy() if (record := self._records.get(key)) else None for key in changed}
        alarms = tuple(self._alarms.values()) if self._alarms_changed else None
        self._alarms_changed = False
        marks, taken = tuple(label[:2] for label in labels), tuple(label[2] for label in labels)
        return Changes(answers, marks, taken, drawn, records, alarms)

    def restore(self, answers: Iterable[Row], records: Mapping[Key, Record], alarms: Iterable[Alarm]) -> None:
        """Go on where a former run ended. Called before the first answer."""
        for row in answers:
            self._keep(row)
            if row.listed:
                self._asked[row.common.tenant] = max(row.listed, self._asked.get(row.common.tenant, row.listed))
        self._records.update(list(records.items())[-MAX_RECORDS:])
        for alarm in list(alarms)[-MAX_ALARMS:]:
            self._alarms[alarm.id], self._raised = alarm, max(self._raised, alarm.id)

    def _keep(self, row: Row) -> None:
        """Keep a row, in the place of the oldest if there is no room."""
        for kept in (self._rows, self._drawn, self._recalled):
            kept.pop(row.digest, None)
        (self._drawn if row.inclusion else self._rows)[row.digest] = row
        self._remembered = row.sequence + 1
        for kept, most in ((self._rows, self._memory), (self._drawn, MAX_DRAWN)):
            if len(kept) > most:
                kept.popitem(last=False)

    def _replace(self, row: Row) -> None:
        """Keep a row in the place of what it was."""
        for kept in (self._rows, self._drawn, self._recalled):
            if row.digest in kept:
                kept[row.digest] = row
        if row.id:
            self._new_drawn.append(row)

    def _forget(self, now: float) -> None:
        for kept in (self._rows, self._drawn):
            while kept and now - next(iter(kept.values())).at > self._seconds:
                kept.popitem(last=False)

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


def digest_of(id: str) -> bytes:
    """Return what stands for the id of an answer."""
    return hashlib.blake2b(id.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()
