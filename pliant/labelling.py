"""Labels that people are asked for because a promise needs them: what a flow asks, and what was answered.

Below PLIANT_HOME/labels, `TASK.json` holds the texts of a task whose labels the flow wants, without what any level says of
them, and `TASK.jsonl` the labels that were given. Only their owner may read either file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pliant import state
from pliant.errors import InputError
from pliant.jsonl import append_whole, complete_lines, write_whole

SHOWN = 60  # characters of a text in an error
Text = tuple[str, str | None]
"""A text, and the second one of a pair."""


@dataclass(frozen=True, slots=True)
class Questions:
    """The texts of a task whose labels are wanted, in random order. `purpose`: a sentence on what they would buy."""

    task: str
    classes: tuple[str, ...]
    texts: tuple[Text, ...]
    purpose: str


@dataclass(frozen=True, slots=True)
class Label:
    """The label of a text. `by`: who gave it."""

    first: str
    second: str | None
    label: str
    by: str


def folder_of(home: Path) -> Path:
    """Return the folder of all questions and labels."""
    return home / "labels"


def ask(folder: Path, questions: Questions) -> None:
    """Replace a task's questions; without texts nothing is asked any more. Raises `OSError`."""
    path = folder / f"{questions.task}.json"
    if not questions.texts:
        path.unlink(missing_ok=True)
        return
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(asdict(questions)).encode())


def tasks(folder: Path) -> list[str]:
    """Return the tasks with questions, sorted."""
    return sorted(path.stem for path in folder.glob("*.json"))


def questions_of(folder: Path, task: str) -> Questions:
    """Return a task's questions, with those that have an answer. Raises `InputError` where there are none."""
    if task not in tasks(folder):
        raise InputError(
            "TASK", task, f"one whose labels are wanted: {', '.join(tasks(folder)) or 'now there is none'}"
        )
    try:
        content = (folder / f"{task}.json").read_text("utf-8")
    except OSError as error:
        raise InputError("labels", folder, f"a folder of files that can be read ({error})") from None
    return state.read(Questions, content, "questions as a flow writes them")


def unanswered(folder: Path, task: str) -> Questions:
    """Return a task's questions that have no answer yet. Raises `InputError` where there are no questions."""
    questions, known = questions_of(folder, task), {(label.first, label.second) for label in answers(folder, task)}
    return replace(questions, texts=tuple(text for text in questions.texts if text not in known))


def answers(folder: Path, task: str) -> list[Label]:
    """Return the labels that were given for a task's texts. Raises `InputError` for a file with anything else."""
    path = folder / f"{task}.jsonl"
    if not path.exists():
        return []
    return [state.read(Label, line, f"a label, as each line of {path} is") for line in complete_lines(path, "labels")]


def take(folder: Path, task: str, given: Sequence[tuple[str, str | None, str]], by: str) -> int:
    """Keep labels of a task's texts, all or none, and return how many are new.

    Raises `InputError` for a text that was not asked about, an unknown class, a label that contradicts another one of the
    same text, and where they cannot be written.
    """
    questions = questions_of(folder, task)
    texts, known = set(questions.texts), {(each.first, each.second): each.label for each in answers(folder, task)}
    new: list[Label] = []
    for first, second, label in given:
        shown = repr(first if len(first) <= SHOWN else first[:SHOWN] + "...")
        if (first, second) not in texts:
            raise InputError("text", shown, "one of those whose labels are wanted")
        if label not in questions.classes:
            raise InputError(f"label of {shown}", repr(label), f"one of {_named(questions.classes)}")
        before = known.setdefault((first, second), label)
        if before != label:
            raise InputError(f"label of {shown}", repr(label), f"{before!r}, as it was given before")
        new.append(Label(first, second, label, by))
    kept = {(each.first, each.second) for each in answers(folder, task)}
    lines = {
        (each.first, each.second): json.dumps(asdict(each)) for each in new if (each.first, each.second) not in kept
    }
    try:
        append_whole(folder / f"{task}.jsonl", "".join(f"{line}\n" for line in lines.values()).encode())
    except OSError as error:
        raise InputError("labels", folder, f"a folder that can be written to ({error})") from None
    return len(lines)


def _named(classes: Iterable[str]) -> str:
    return ", ".join(map(repr, classes))
