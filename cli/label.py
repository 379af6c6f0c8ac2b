"""`pliant label`: a person gives the labels that a promise needs, in the terminal or in a CSV file."""

from __future__ import annotations

import csv
import io
import os
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pliant import labelling
from pliant.errors import InputError
from pliant.jsonl import write_whole
from pliant.labelling import Questions, Text

FEW = 9  # classes that are repeated with every text
SURROGATES = "surrogatepass"
"""How a CSV file holds halves of surrogate pairs, which a text of a data set may have."""


def command(commands: Any) -> None:
    """Add the command to those of `pliant`."""
    text = "give the labels that a promise needs: of texts on which the levels of a cascade differ"
    parsers = commands.add_parser("label", help=text).add_subparsers(required=True, metavar="SYSTEM")
    more = "What was given is kept, however the command ends; `pliant train cascade` uses it."
    parser = parsers.add_parser("cascade", help=text, description=f"{text[0].upper()}{text[1:]}. {more}")
    parser.add_argument("task", nargs="?", metavar="TASK", help="default: the only one whose labels are wanted")
    files = parser.add_mutually_exclusive_group()
    text = "write the texts without a label to this new CSV file, with an empty column label"
    files.add_argument("--csv", type=Path, metavar="FILE", help=text)
    text = "take the labels of such a file, all or none; texts whose label is empty are passed over"
    files.add_argument("--take", type=Path, metavar="FILE", help=text)
    parser.set_defaults(run=run)


def run(args: Namespace) -> None:
    """Ask for labels, or write or read a file, and say how many labels are there."""
    from pliant.flows import settings

    folder = labelling.folder_of(settings.read().home_of("cascade"))
    tasks = labelling.tasks(folder)
    if not tasks:
        print("No labels are wanted now.")
        return
    if args.task is None and len(tasks) > 1:
        raise InputError("TASK", "missing", f"given, as labels of several are wanted: {', '.join(tasks)}")
    task = tasks[0] if args.task is None else args.task
    wanted, left = labelling.questions_of(folder, task), labelling.unanswered(folder, task)

    def keep(given: Sequence[tuple[str, str | None, str]], place: Callable[[int], str] = lambda _at: "") -> int:
        return labelling.take(folder, task, given, os.environ.get("USER", "terminal"), place)

    if args.take is not None:
        rows = read_csv(args.take, wanted)
        labels = [(*text, label) for _, text, label in rows]
        print(f"New labels: {keep(labels, lambda at: f'row {rows[at][0]}: ')}.")
    elif args.csv is not None:
        write_csv(args.csv, left)
        print(f"Texts without a label in {args.csv}: {len(left.texts)}. Then: pliant label cascade {task} --take FILE")
    else:
        ask(left, lambda text, label: keep([(*text, label)]))
    count = len(wanted.texts) - len(labelling.unanswered(folder, task).texts)
    then = "; run `pliant train cascade` to use them" if count else ""
    print(f"{task}: {count} of {len(wanted.texts)} labels that are wanted are there{then}.")


def ask(questions: Questions, keep: Callable[[Text, str], Any]) -> None:
    """Show text after text, and keep each label that is given when the next one is, or at the end."""
    texts, classes = questions.texts, questions.classes
    # Where a class has the name of a command, the commands begin with a colon.
    skip, back, end = (f"{':' * bool({'s', 'b', 'q'} & set(classes))}{letter}" for letter in "sbq")
    listed = [f"{number} {name}" for number, name in enumerate(classes, 1)] if numbered(classes) else list(classes)
    if texts:
        means = "its number, its name or the beginning of its name" if numbered(classes) else "its name"
        print(f"{questions.purpose}\n\nGive each text a class by {means}: {', '.join(listed)}.")
        print(f"{skip}: skip the text; {back}: take the last label back; {end}: end.")
    last: tuple[int, str] | None = None
    at = 0
    while at < len(texts):
        print("", *filter(None, map(_visible, texts[at])), sep="\n")
        prompt = f"[{', '.join(listed)}] " if len(classes) <= FEW else ""
        word = _line(f"{prompt}{at + 1} of {len(texts)}: ")
        if word in (None, end):
            break
        if word == skip:
            at += 1
        elif word == back:
            if last is None:
                print("There is no label that could be taken back.")
            else:
                at, last = last[0], None
        elif len(meant := matching(word, classes)) == 1:
            if last is not None:
                keep(texts[last[0]], last[1])
            last, at = (at, meant[0]), at + 1
        else:
            several = f"begins several classes: {labelling.named(meant)}" if meant else "is no class"
            print(f"{word!r} {several}.")
    if last is not None:
        keep(texts[last[0]], last[1])


def numbered(classes: Sequence[str]) -> bool:
    """Whether classes have numbers: unless a name of theirs looks like one, and could be taken for another's number."""
    return not any(re.match(r"[-+.]?\d", name) for name in classes)


def matching(word: str, classes: Sequence[str]) -> list[str]:
    """Return the class of this name or number, or else all whose name begins with the word."""
    if word in classes:
        return [word]
    if word.isdecimal() and numbered(classes):
        return list(classes[int(word) - 1 : int(word)]) if int(word) else []
    return [name for name in classes if word and name.casefold().startswith(word.casefold())]


def _line(prompt: str) -> str | None:
    """Return the next line of standard input; None at its end, after Ctrl-C, and for what is no text."""
    try:
        return input(prompt).strip()
    except (EOFError, KeyboardInterrupt, UnicodeDecodeError):
        print()
        return None


def _visible(part: str | None) -> str:
    """Return a text without the characters that change a terminal."""
    return "".join(each if each.isprintable() or each in "\n\t" else " " for each in part or "")


def write_csv(path: Path, questions: Questions) -> None:
    """Write texts to a new file, as spreadsheets read it. Raises `InputError` where there is one, or none can be written."""
    if path.exists():
        raise InputError("--csv", path, "a file that is not there yet: labels may be in it")
    pairs = any(second is not None for _, second in questions.texts)
    content = io.StringIO(newline="")
    writer = csv.writer(content)
    writer.writerow(_columns(pairs))
    writer.writerows([first, second or "", ""] if pairs else [first, ""] for first, second in questions.texts)
    try:
        write_whole(path, content.getvalue().encode("utf-8-sig", SURROGATES))
    except OSError as error:
        raise InputError("--csv", path, f"a file that can be written ({error.strerror})") from None


def read_csv(path: Path, questions: Questions) -> list[tuple[int, Text, str]]:
    """Return row, text and label of each row with a label. Raises `InputError` for a file without the columns.

    A spreadsheet may have changed line breaks in texts, and the comma; both are recognized.
    """
    csv.field_size_limit(sys.maxsize)
    try:
        content = path.read_bytes().decode("utf-8-sig", SURROGATES)
        separator = max(",;\t", key=content.partition("\n")[0].count)
        head, *rows = csv.reader(io.StringIO(content, newline=""), delimiter=separator, strict=True)
    except OSError as error:
        raise InputError("--take", path, f"a file that can be read ({error.strerror})") from None
    except (ValueError, csv.Error) as error:
        raise InputError("--take", path, f"a CSV file in UTF-8 ({error})") from None
    pairs = any(second is not None for _, second in questions.texts)
    names = [name.strip() for name in head]
    if missing := [name for name in _columns(pairs) if name not in names]:
        raise InputError("--take", path, f"a file whose first row names the column {missing[0]}")
    places = [names.index(name) for name in _columns(pairs)]
    asked_as = {_broken_alike(text): text for text in questions.texts}
    labelled = []
    for number, row in enumerate(rows, 2):
        first, *second, label = (row[place] if place < len(row) else "" for place in places)
        text = (first, second[0] if pairs else None)
        if label.strip():
            labelled.append((number, asked_as.get(_broken_alike(text), text), label.strip()))
    return labelled


def _columns(pairs: bool) -> list[str]:
    return ["text", "text2", "label"] if pairs else ["text", "label"]


def _broken_alike(text: Text) -> Text:
    """Return a text with the line breaks that every spreadsheet keeps."""
    first, second = (part and re.sub("\r\n?", "\n", part) for part in text)
    return first or "", second
