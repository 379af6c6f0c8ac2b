"""What a stage shows: lines where there is no terminal, at least one in every interval, and its end to those who observe."""

from __future__ import annotations

import threading
from contextlib import contextmanager, redirect_stderr

import pytest

from pliant.flows import progress


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(progress, "EVERY", 0.01)


class Lines:
    """Standard error, whose lines can be waited for."""

    def __init__(self):
        self.lines, self.changed = [], threading.Condition()

    def write(self, text):
        with self.changed:
            if text.strip():
                self.lines.append(text.strip())
            self.changed.notify_all()

    def flush(self):
        pass

    def isatty(self):
        return False

    def await_line(self, part):
        with self.changed:
            assert self.changed.wait_for(lambda: any(part in line for line in self.lines), 60), self.lines


@contextmanager
def stage_and_lines(name):
    """The stage's report and what it shows. Redirected here: pytest puts its own stream back after a fixture."""
    lines = Lines()
    with redirect_stderr(lines), progress.stage(name) as report:
        yield report, lines


def test_a_line_says_share_and_time_left(often):
    with stage_and_lines("training") as (report, lines):
        report(25, 100)
        lines.await_line("training: 25% after 0 s, about 0 s left")


def test_no_line_comes_after_the_end(often):
    with pytest.raises(ValueError, match="lost"), stage_and_lines("training") as (_, lines):
        lines.await_line("so far")
        raise ValueError("lost")
    assert not any(thread.name == "progress of training" for thread in threading.enumerate())
    assert not any("done" in line for line in lines.lines)


def test_observers_hear_of_the_end_while_they_observe():
    heard = []
    with progress.observed(lambda name, seconds: heard.append((name, seconds >= 0))), progress.stage("training"):
        assert heard == []
    with progress.stage("afterwards"):
        pass
    assert heard == [("training", True)]


def test_a_terminal_gets_a_bar_with_the_time_left(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress.stage("training") as report:
        report(1, 2)
    shown = capsys.readouterr().err
    assert "training" in shown and "left" in shown and "50%" in shown
