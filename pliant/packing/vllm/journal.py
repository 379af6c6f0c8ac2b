"""The journal of decisions in vLLM: a file of JSON lines, and a command that decides it again.

    python -m pliant.packing.vllm.journal FILE

Every run of the engine appends a line with its policy and memory, and then a line for each decision
(pliant/packing/scheduling/journal.py).
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from pliant.errors import InputError
from pliant.packing.scheduling.journal import Journal, decode, encode, replay
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory, StepInput, StepPlan
from pliant.packing.scheduling.scheduler import PackingScheduler

logger = logging.getLogger("pliant.packing.vllm")

FLUSH = 0.5  # seconds that decisions wait to be written, at most; none waits behind the end of a request


class JournalFile:
    """The file to which one run's decisions are appended. Raises `InputError` where it cannot be opened."""

    def __init__(self, path: str, rules: Rules, memory: Memory) -> None:
        self._file: TextIO | None = None
        try:
            self._file = Path(path).open("a")  # noqa: SIM115
        except OSError as error:
            raise InputError("journal", path, f"a file that can be written ({error})") from None
        self._written = 0.0  # when the file was last written to, on the decisions' clock
        self._write(json.dumps({"rules": asdict(rules), "memory": asdict(memory)}), at_once=True)

    def add(self, now: float, step_input: StepInput, plan: StepPlan) -> None:
        """Append a decision. A file that cannot be written any more ends the journal, not the engine."""
        at_once = bool(step_input.finished or step_input.cancelled) or now - self._written >= FLUSH
        self._write(encode(now, step_input, plan), at_once)
        self._written = now if at_once else self._written

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            try:
                file.close()
            except OSError as error:
                logger.error("the journal ends without its last decisions: %s", error)

    def _write(self, line: str, at_once: bool) -> None:
        if self._file is None:
            return
        try:
            self._file.write(line + "\n")
            if at_once:
                self._file.flush()
        except OSError as error:
            logger.error("the journal ends here: %s", error)
            self.close()


@dataclass(frozen=True, slots=True)
class Run:
    """The decisions of one run of the engine, and what they were made for."""

    rules: Rules
    memory: Memory
    entries: Journal

    def first_difference(self) -> int | None:
        """Decide all again; return the number of the first decision that is another one, None if there is none."""
        again = replay(PackingScheduler(self.rules, self.memory), self.entries)
        pairs = enumerate(zip(self.entries, again, strict=True), 1)
        return next((number for number, (entry, repeated) in pairs if entry != repeated), None)

    def __str__(self) -> str:
        inputs, plans = [entry[1] for entry in self.entries], [entry[2] for entry in self.entries]
        seconds = self.entries[-1][0] - self.entries[0][0] if self.entries else 0.0
        counts = {
            "decisions": len(self.entries),
            "requests": sum(len(each.arrived) for each in inputs),
            "finished": sum(len(each.finished) for each in inputs),
            "cancelled": sum(len(each.cancelled) for each in inputs),
            "too late": sum(len(each.dropped) for each in plans),
            "preempted": sum(len(each.discarded) for each in plans),
            "corrected": sum(len(each.corrected) for each in inputs),
        }
        numbers = ", ".join(f"{count} {name}" for name, count in counts.items())
        return f"policy {self.rules.policy}, {self.memory.pages} pages, {seconds:.1f} s: {numbers}"


def read(path: Path) -> list[Run]:
    """Return the runs of a file; an incomplete last line of one, left by a killed process, is passed over.

    Raises `InputError` for a file that cannot be read, and for a line that is none of a journal.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("journal", path, f"a file that can be read ({error})") from None
    runs: list[Run] = []
    lines = text.split("\n")[:-1]  # what follows the last line end is incomplete
    for number, line in enumerate(lines, 1):
        place, shown = f"line {number} of {path}", repr(line[:80])
        # A run that was killed left an incomplete line, to which the next run's first one was appended.
        head = line.find('{"rules": ')
        if head >= 0:
            try:
                values = json.loads(line[head:])
                runs.append(Run(Rules(**values["rules"]), Memory(**values["memory"]), []))
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(place, shown, f"rules and memory of this version ({error})") from None
        elif not runs:
            raise InputError(place, shown, "that of a run, with its rules")
        else:
            runs[-1].entries.append(decode(line))
    return runs


def main(path: str) -> int:
    """Print what each run did, and whether it is decided in the same way again; 1 if one is not, 2 if it cannot be read."""
    try:
        runs = read(Path(path))
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    differing = 0
    for number, run in enumerate(runs, 1):
        at = run.first_difference()
        differing += at is not None
        verdict = "decided the same again" if at is None else f"decision {at} is another one when it is decided again"
        sys.stdout.write(f"run {number}: {run}; {verdict}\n")
    return int(differing > 0)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m pliant.packing.vllm.journal FILE")
    sys.exit(main(sys.argv[1]))
