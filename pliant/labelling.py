"""Labels that people are asked for because a promise needs them: what a flow asks, and what was answered.

Below PLIANT_HOME/labels, `TASK.json` holds the texts of a task whose labels the flow wants, without what any level says of
them, and `TASK.jsonl` the labels that were given. Only their owner may read either file.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pliant import state
from pliant.errors import InputError
from pliant.jsonl import Torn, append_whole, blank_lines, complete_lines, write_whole

SHOWN = 60  # characters of a text in an error
CLASSES_SHOWN = 20  # in an error
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


class LabelsError(InputError):
    """The files of questions and labels cannot be read or written: no fault of who gives labels."""


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
    """Return a task's questions, with those that have an answer.

    Raises `InputError` where there are none, `LabelsError` where they cannot be read.
    """
    if task not in tasks(folder):
        limit = f"one whose labels are wanted: {', '.join(tasks(folder)) or 'now there is none'}"
        raise InputError("TASK", repr(task), limit)
    path = folder / f"{task}.json"
    try:
        return state.read(Questions, path.read_text("utf-8"), f"questions as a flow writes them to {path}")
    except (OSError, ValueError) as error:
        raise LabelsError("file of questions", path, f"one that can be read ({error})") from None
    except InputError as error:
        raise LabelsError("file of questions", path, error.limit) from None


def unanswered(folder: Path, task: str) -> Questions:
    """Return a task's questions that have no answer yet. Raises as `questions_of` and `answers`."""
    questions, known = questions_of(folder, task), {(label.first, label.second) for label in answers(folder, task)}
    return replace(questions, texts=tuple(text for text in questions.texts if text not in known))


def answers(folder: Path, task: str) -> list[Label]:
    """Return the labels that were given for a task's texts. Raises `LabelsError` for a file that cannot be read.

    A line that a killed process left torn is passed over: nobody was told that its label is kept.
    """
    path = folder / f"{task}.jsonl"
    if not path.exists():
        return []
    try:
        lines = complete_lines(path, "file of labels")
    except InputError as error:
        raise LabelsError(error.field, error.value, error.limit) from None
    labels, torn = [], Torn(path)
    for number, line in enumerate(lines, 1):
        if line.strip():  # else it was forgotten
            with torn.pass_over(number):
                labels.append(state.read(Label, line, "a label"))
    torn.report("labels")
    return labels


def take(
    folder: Path,
    task: str,
    given: Sequence[tuple[str, str | None, str]],
    by: str,
    place: Callable[[int], str] = lambda _at: "",
) -> int:
    """Keep labels of a task's texts, all or none, and return how many are new.

    `place` begins the error of a label, by its place in the list. Raises `InputError` for a text that was not asked about,
    an unknown class, and a label that contradicts another one of the same text; `LabelsError` where they cannot be kept.
    """
    questions = questions_of(folder, task)
    try:
        with (folder / ".lock").open("w") as lock:  # a service and a terminal may take labels at a time
            fcntl.flock(lock, fcntl.LOCK_EX)
            new = _new(questions, answers(folder, task), given, by, place)
            if new:
                content = "".join(f"{json.dumps(asdict(label))}\n" for label in new)
                append_whole(folder / f"{task}.jsonl", content.encode())
    except OSError as error:
        raise LabelsError("folder of labels", folder, f"one that can be written to ({error})") from None
    return len(new)


def forget(folder: Path, texts: Collection[Text]) -> None:
    """Remove texts, and overwrite their labels, of all tasks. Raises `LabelsError` for files that cannot be changed."""

    def meant(line: bytes) -> bool:
        try:
            label = state.read(Label, line.decode(), "a label")
        except (InputError, ValueError):
            return False
        return (label.first, label.second) in texts

    try:
        for task in tasks(folder):
            questions = questions_of(folder, task)
            ask(folder, replace(questions, texts=tuple(text for text in questions.texts if text not in texts)))
        for path in folder.glob("*.jsonl"):
            blank_lines(path, meant)
    except OSError as error:
        raise LabelsError("folder of labels", folder, f"one that can be written to ({error})") from None


def _new(
    questions: Questions,
    kept: Iterable[Label],
    given: Sequence[tuple[str, str | None, str]],
    by: str,
    place: Callable[[int], str],
) -> list[Label]:
    """Return the labels that are not kept yet. Raises `InputError` as `take`."""
    texts, known = set(questions.texts), {(each.first, each.second): each.label for each in kept}
    new = []
    for at, (first, second, label) in enumerate(given):
        text, shown = (first, second), repr(first if len(first) <= SHOWN else f"{first[:SHOWN]}...")
        if text not in texts:
            raise InputError(f"{place(at)}text", shown, "one of those whose labels are wanted")
        if label not in questions.classes:
            raise InputError(f"{place(at)}label of {shown}", repr(label), f"one of {named(questions.classes)}")
        if text not in known:
            known[text] = label
            new.append(Label(first, second, label, by))
        elif known[text] != label:
            raise InputError(f"{place(at)}label of {shown}", repr(label), f"{known[text]!r}, as it was given before")
    return new


def named(classes: Sequence[str]) -> str:
    """Return the names of classes for a sentence; of very many the first."""
    more = f" and {len(classes) - CLASSES_SHOWN} more" if len(classes) > CLASSES_SHOWN else ""
    return ", ".join(map(repr, classes[:CLASSES_SHOWN])) + more
