"""Folders of labelled pictures.

A class is a sub-folder, `FOLDER/CLASS/*.jpg`, in which pictures may lie at any depth. Or all sub-folders are parts of the
data, `FOLDER/train/CLASS/*.jpg` and `FOLDER/test/CLASS/*.jpg`, perhaps `validation`, too; a folder `train` that holds
pictures itself is a class of that name. Every file is a picture, but for hidden ones and notes such as `README.txt`:
a picture that cannot be read is refused by name, not left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pliant.errors import InputError

FIT, TEST, VALIDATION = "fit", "test", "validation"
PARTS = {
    **dict.fromkeys(("train", "training"), FIT),
    **dict.fromkeys(("test", "testing"), TEST),
    **dict.fromkeys(("val", "valid", "validation", "dev"), VALIDATION),
}
"""The parts of the data by the names of their folders."""
NOTES = frozenset({".txt", ".md", ".rst", ".pdf", ".html", ".ini", ".db", ".yaml", ".yml", ".xml"})
TABLES = ("metadata.csv", "metadata.jsonl", "metadata.parquet")  # which `datasets` would take labels from
LAYOUT = "a folder with one sub-folder of images per class, or with such folders named train and test"


@dataclass(frozen=True, slots=True)
class LabelledFile:
    path: Path
    label: str
    part: str  # FIT, TEST or VALIDATION


def labelled_files(folder: Path) -> Sequence[LabelledFile]:
    """Return the pictures of a folder, in the order of their paths. Raises `InputError` for any other layout."""
    if not folder.is_dir():
        raise InputError("data", folder, f"an existing folder: {LAYOUT}")
    try:
        inner = _folders(folder)
        parts = {part: PARTS[part.name.lower()] for part in inner if part.name.lower() in PARTS and _folders(part)}
        if parts and len(parts) < len(inner):
            others = ", ".join(each.name for each in inner if each not in parts)
            beside = ", ".join(part.name for part in parts)
            raise InputError("data", f"{folder}, where {others} stands beside {beside}", LAYOUT)
        if parts and FIT not in parts.values():
            raise InputError("data", f"{folder}, which has no folder train", LAYOUT)
        files = [file for part, name in (parts or {folder: FIT}).items() for file in _of_part(part, name)]
    except OSError as error:
        raise InputError("data", f"{error.filename} ({error.strerror})", "a folder that can be read") from None
    if not files:
        raise InputError("data", folder, LAYOUT)
    if lacking := {file.label for file in files} - {file.label for file in files if file.part == FIT}:
        raise InputError("data", f"{folder}, where {', '.join(sorted(lacking))} is in no train folder", LAYOUT)
    return files


def _of_part(folder: Path, part: str) -> Iterator[LabelledFile]:
    for file in sorted(folder.iterdir()):
        if file.name in TABLES:
            raise InputError(
                "data", f"{file}, a table of labels", "sub-folders named by their classes, or a parquet file"
            )
        if _is_picture(file):
            raise InputError("data", f"{file}, which lies in no class's folder", LAYOUT)
    for label in _folders(folder):
        for root, folders, files in os.walk(label, onerror=_raise, followlinks=True):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            if Path(root).parent.resolve().is_relative_to(Path(root).resolve()):
                raise InputError("data", f"{root}, a link to a folder that it lies in", LAYOUT)
            pictures = filter(_is_picture, (Path(root, name) for name in sorted(files)))
            yield from (LabelledFile(path, label.name, part) for path in pictures)


def _raise(error: OSError) -> None:
    raise error


def _folders(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))


def _is_picture(file: Path) -> bool:
    return not file.is_dir() and not file.name.startswith(".") and file.suffix.lower() not in NOTES
