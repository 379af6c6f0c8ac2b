"""Journals are written and read back, also after a full disk and a killed process."""

from __future__ import annotations

from typing import ClassVar

import pytest

from pliant.errors import InputError
from pliant.journal import encode
from pliant.protocol import Answer, Arrived, Drop, Failed, Finished, JournalEntry, Launch, Request, Result, Woke
from pliant.serving import journal
from pliant.serving.journal import FileRecorder, read

ENTRIES = [
    JournalEntry(0.1 + 0.2, Arrived(Request(0, 0.1 + 0.2, 1 / 3, "a task", 0.7)), (Launch(0, 1, (0, 1), -5),)),
    JournalEntry(1e-300, Arrived(Request(1, 2.0, float("inf"), "é\n", 1.0)), ()),
    JournalEntry(2.5, Finished(0, 0.1, (Result(0), Result(1, True))), (Answer(0, 0), Drop(1, "late"))),
    JournalEntry(3.0, Failed(1, 'ended: "x"'), (Launch(2, 0, kind="restart"),)),
    JournalEntry(4.0, Woke(), ()),
]


def test_a_recorded_file_reads_back_as_the_journal(tmp_path):
    recorder = FileRecorder(tmp_path / "new" / "journal.jsonl")
    for entry in ENTRIES:
        recorder(entry)
    recorder.close()
    assert read(tmp_path / "new" / "journal.jsonl") == ENTRIES


def test_the_journals_of_former_runs_are_kept_beside_the_new_one(tmp_path, caplog):
    file = tmp_path / "journal.jsonl"
    for entry in ENTRIES[:3]:
        recorder = FileRecorder(file)
        recorder(entry)
        recorder.close()
    assert [read(file.with_name(f"journal.jsonl{end}")) for end in (".1", ".2", "")] == [
        [entry] for entry in ENTRIES[:3]
    ]
    assert [record.message for record in caplog.records] == [
        f"the journal of a former run, {file}, is kept as {file}.{number}" for number in (1, 2)
    ]


def test_a_journal_goes_on_in_another_file_and_reads_back_as_one_run(tmp_path):
    file = tmp_path / "journal.jsonl"
    recorder = FileRecorder(file, segment_bytes=300)
    for _ in range(20):
        for entry in ENTRIES:
            recorder(entry)
    recorder.close()
    assert read(file) == ENTRIES * 20
    sizes = [path.stat().st_size for path in tmp_path.glob("journal.jsonl.*")]
    assert len(sizes) > 5 and max(sizes) < 300 + 2 * max(len(encode(entry).encode()) for entry in ENTRIES)


def test_the_oldest_files_are_removed_and_a_run_without_its_begin_is_refused(tmp_path):
    file = tmp_path / "journal.jsonl"
    recorder = FileRecorder(file, segment_bytes=300, kept_bytes=1000)
    for _ in range(200):
        recorder(ENTRIES[0])
    recorder.close()
    kept = {int(path.suffix[1:]): path.stat().st_size for path in tmp_path.glob("journal.jsonl.*")}
    assert sum(kept.values()) <= 1000 and max(kept) > 20
    assert list(range(max(kept) - len(kept) + 1, max(kept) + 1)) == sorted(kept)  # the newest
    with pytest.raises(InputError, match=r"journal is .*, but must be a file that can be read"):
        read(file)


def test_a_journal_that_another_service_writes_is_refused_and_keeps_its_entries(tmp_path):
    file = tmp_path / "journal.jsonl"
    first = FileRecorder(file)
    first(ENTRIES[0])
    with pytest.raises(InputError, match=r"journal is .*jsonl, but must be a file that no other service writes"):
        FileRecorder(file)
    first(ENTRIES[1])
    first.close()
    assert read(file) == ENTRIES[:2]
    FileRecorder(file).close()


def test_a_broken_line_in_the_middle_is_named_by_its_number(tmp_path):
    file = tmp_path / "journal.jsonl"
    file.write_text(encode(ENTRIES[0]) + "\nrubbish\n" + encode(ENTRIES[1]) + "\n")
    with pytest.raises(InputError, match=r"line 2 of .*jsonl"):
        read(file)


def test_a_journal_that_cannot_be_made_is_refused_before_serving(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"journal is .*jsonl, but must be a file that can be written"):
        FileRecorder(tmp_path / "file" / "journal.jsonl")


class Timer:
    """A timer that fires when a test says so."""

    made: ClassVar[list[Timer]] = []

    def __init__(self, seconds, fire) -> None:
        self.seconds, self.fire, self.daemon, self.state = seconds, fire, False, "made"
        Timer.made.append(self)

    def start(self) -> None:
        self.state = "started"

    def cancel(self) -> None:
        self.state = "cancelled"


@pytest.fixture
def clock(monkeypatch):
    """The time of the recorder, whose timers do not fire by themselves."""
    now = [100.0]
    monkeypatch.setattr(journal.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(journal.threading, "Timer", Timer)
    monkeypatch.setattr(Timer, "made", [])
    return now


def test_entries_wait_for_a_second_at_most_and_for_one_timer(tmp_path, clock):
    file = tmp_path / "journal.jsonl"
    recorder, written = FileRecorder(file), 0
    for time, flushed in ((100.5, False), (101.0, False), (101.1, True), (102.0, False), (202.2, True)):
        clock[0] = time
        recorder(ENTRIES[0])
        written += 1
        assert (len(read(file)) == written) is flushed, time
    (timer,) = Timer.made
    assert (timer.seconds, timer.daemon, timer.state) == (1.0, True, "started")
    clock[0] = 202.5
    recorder(ENTRIES[0])
    timer.fire()
    assert len(read(file)) == written + 1 and len(Timer.made) == 1
    recorder(ENTRIES[0])
    assert len(read(file)) == written + 1 and [one.state for one in Timer.made] == ["started", "started"]
    recorder.close()
    assert len(read(file)) == written + 2 and Timer.made[1].state == "cancelled"
    Timer.made[1].fire()  # it had fired just before it was cancelled
    assert len(read(file)) == written + 2
