"""The embedded corpus: docstrings of the installed scientific packages, English texts of 5 to 1,000 tokens.

They are read from the packages' source files (nothing is imported) and labelled by what the source says about them:

    package      which package the docstring comes from
    kind         what it documents: a class, a function, a method or a module
    parameters   how many parameters it documents, as log2(1 + count): a regression
    same         a pair: do a summary and a further paragraph come from one docstring? (otherwise from two of one package)

The names of all packages and their import aliases ("numpy", "np", "plt", ...) are removed from all texts, so that
neither a name nor its absence reveals the package; so are doctests, which are code. A docstring that repeats others
(inherited, or made from a template) is left out. All docstrings of a file are in the fit split, or all are held out.
Another version of a package gives other texts and another fingerprint.

Shape suffixes: R rows, S source files.
"""

from __future__ import annotations

import ast
import gc
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError
from pliant.training.data import Split, cut
from pliant.training.text_data import Shares, TextData, assemble

PACKAGES = ("matplotlib", "networkx", "numpy", "pandas", "scipy", "sklearn", "sympy", "torch", "transformers")
TASKS = ("package", "kind", "parameters", "same")
KINDS = ("class", "function", "method", "module")
SHARES = Shares()
PER_PACKAGE, PER_FILE = 1000, 10  # docstrings at most; those of one file are similar
MIN_TOKENS, MAX_TOKENS = 5, 1000  # words and punctuation marks
MIN_WORDS = 16  # of a text that shows its package
NO_CLASS = "numpy"  # no class of the task "package", as its texts are too much like scipy's
MIN_FURTHER = 8  # words of the second paragraph of a pair
LARGEST_FILE = 60_000  # bytes; larger files take long for the docstrings that they have
LEFT_OUT = frozenset({"test", "tests", "testing", "_testing", "vendor", "_vendor", "vendored", "externals"})
RUN = 5  # words; docstrings that share half of their runs of words repeat one another

NAMES = re.compile(
    r"(?<![a-z])(?:(?:py)?torch|scikit[- ]learn|hugging ?face|matplotlib|pyplot|transformers|networkx|sklearn"
    r"|pandas|numpy|scipy|sympy|mpl|plt|np|pd|nx|sp)(?![a-z])\.?",
    re.IGNORECASE,
)
TOKEN = re.compile(r"\w+|[^\w\s]")
WORD = re.compile(r"[a-z]+")
BLANK_LINE = re.compile(r"\n\s*\n")
RULE = re.compile(r"^\s*[-=~^*#.`]{3,}\s*$", re.MULTILINE)  # a line under or around a heading
DOCTEST = re.compile(r"^\s*>>>", re.MULTILINE)

SPHINX = re.compile(r"^\s*:param [^:]+:", re.MULTILINE)
NUMPY_SECTION = re.compile(r"^(?:Other )?Parameters\n-{3,}\n((?:.*\n?)*?)(?=^\S.*\n-{3,}|\Z)", re.MULTILINE)
NUMPY_ENTRY = re.compile(r"^(\*{0,2}\w+(?:, *\*{0,2}\w+)*) *(?::.*)?$", re.MULTILINE)
GOOGLE_SECTION = re.compile(r"^(?:Args|Arguments|Parameters):\n((?:[ \t]+.*\n?|\n)*)", re.MULTILINE)
GOOGLE_ENTRY = re.compile(r"^`?\*{0,2}\w+`? *(?:\(.*\))? *:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Docstring:
    """One docstring.

    `source` is the file as a path from the package on; the first of the `paragraphs` is the summary.
    """

    package: str
    source: str
    kind: str  # one of KINDS
    paragraphs: tuple[str, ...]
    parameters: int  # how many it documents

    @property
    def text(self) -> str:
        """Its paragraphs, one a line."""
        return "\n".join(self.paragraphs)


def load(
    task: str,
    name: str | None = None,
    seed: int = 0,
    limit: int | None = None,
    shares: Shares = SHARES,
    packages: Sequence[str] = PACKAGES,
) -> TextData:
    """Return the data set of one of `TASKS`, under `name` if one is given; `limit` keeps that many rows.

    Raises `InputError` for an unknown task, and for fewer than two installed packages.
    """
    if task not in TASKS:
        raise InputError("task", task, f"one of {', '.join(TASKS)}")
    docstrings = _of_use(task, corpus(tuple(packages)))
    whole = split([docstring.source for docstring in docstrings], seed, shares)
    first, second, labels, classes = _columns(task, docstrings, whole)
    return assemble(name or task, first, second, labels, classes, cut(whole, limit))


@cache
def corpus(
    packages: tuple[str, ...] = PACKAGES, per_package: int = PER_PACKAGE, per_file: int = PER_FILE
) -> tuple[Docstring, ...]:
    """Return the docstrings of those packages that are installed, always in the same order, at most so many of each.

    They are read once per process, as that takes seconds and every system trains on them. Raises `InputError` for fewer
    than two installed packages.
    """
    seen: set[int] = set()  # the runs of words of all docstrings kept so far
    collecting = gc.isenabled()
    gc.disable()  # syntax trees hold no cycles, and looking for some takes a third of the time
    try:
        docstrings: list[Docstring] = []
        for package in packages:
            own: list[Docstring] = []
            for path, source in _files(package):
                new = (docstring for docstring in _of_file(package, path, source) if _is_new(docstring, seen))
                own += islice(new, per_file)
                if len(own) >= per_package:
                    break
            docstrings += own[:per_package]
    finally:
        if collecting:
            gc.enable()
    present = sorted({docstring.package for docstring in docstrings})
    if len(present) < 2:
        raise InputError("the installed packages", ", ".join(present) or "none", f"two of {', '.join(packages)}")
    return tuple(docstrings)


def split(sources: Sequence[str], seed: int, shares: Shares) -> Split:
    """Hold out whole source files until they have their share of the rows; the others are the fit split.

    Held-out rows are divided into test and profiling row by row, whatever their file: a plan made on one of them holds
    on the other only if both are drawn alike. Raises `InputError` where a part would be empty.
    """
    rng = np.random.default_rng(seed)
    _, source_R, rows_S = np.unique(np.asarray(sources), return_inverse=True, return_counts=True)
    order_S = rng.permutation(len(rows_S))
    start_S = np.empty(len(rows_S))  # rows in the sources before this one
    start_S[order_S] = np.cumsum(rows_S[order_S]) - rows_S[order_S]
    share = shares.test + shares.profiling * (1 - shares.test)
    held_R = start_S[source_R] < share * len(sources)
    fit, held = (rng.permutation(np.flatnonzero(part)).astype(np.int64) for part in (~held_R, held_R))
    test, profiling = np.split(held, [round(len(held) * shares.test / share)])
    if not all(map(len, (fit, profiling, test))):
        raise InputError("data", f"docstrings of {len(rows_S)} files", "enough for a fit, a profiling and a test split")
    return Split(fit, profiling, test)


def parameters(docstring: str) -> int:
    """Return how many parameters a docstring documents, in the style of numpy, Google or Sphinx."""
    if fields := SPHINX.findall(docstring):
        return len(fields)
    if sections := NUMPY_SECTION.findall(docstring):
        return sum(names.count(",") + 1 for section in sections for names in NUMPY_ENTRY.findall(section))
    return sum(len(GOOGLE_ENTRY.findall(dedent(section))) for section in GOOGLE_SECTION.findall(docstring))


def paragraphs(docstring: str) -> tuple[str, ...]:
    """Return its paragraphs without names of packages, doctests and lines under headings, each on one line."""
    blocks = (DOCTEST.split(part, maxsplit=1)[0] for part in BLANK_LINE.split(docstring))
    joined = (" ".join(NAMES.sub("", RULE.sub("", part)).split()) for part in blocks)
    return tuple(part for part in joined if part)


def _of_use(task: str, docstrings: Sequence[Docstring]) -> list[Docstring]:
    match task:
        case "kind":  # equally many of each, as many as of the rarest, taken from all packages in turn
            turn: Counter[tuple[str, str]] = Counter()
            queues: dict[str, list[tuple[int, int]]] = defaultdict(list)
            for at, docstring in enumerate(docstrings):
                queues[docstring.kind].append((turn[docstring.kind, docstring.package], at))
                turn[docstring.kind, docstring.package] += 1
            fewest = min(map(len, queues.values()))
            kept = sorted(at for queue in queues.values() for _, at in sorted(queue)[:fewest])
            return [docstrings[at] for at in kept]
        case "package":
            classed = (docstring for docstring in docstrings if docstring.package != NO_CLASS)
            return [docstring for docstring in classed if len(WORD.findall(docstring.text.lower())) >= MIN_WORDS]
        case "parameters":
            return [docstring for docstring in docstrings if docstring.parameters]
    return [docstring for docstring in docstrings if _further(docstring)]  # same


def _columns(
    task: str, docstrings: Sequence[Docstring], whole: Split
) -> tuple[list[str], list[str] | None, NDArray[Any], tuple[str, ...]]:
    """Return first texts, second texts, labels and class names."""
    texts = [docstring.text for docstring in docstrings]
    match task:
        case "same":
            summaries = [docstring.paragraphs[0] for docstring in docstrings]
            return summaries, *_seconds(docstrings, whole), ("other", "same")
        case "parameters":
            return texts, None, np.log2([1.0 + docstring.parameters for docstring in docstrings]), ()
    named = [docstring.kind if task == "kind" else docstring.package for docstring in docstrings]
    classes = tuple(sorted(set(named)))
    return texts, None, np.array([classes.index(name) for name in named], dtype=np.int64), classes


def _seconds(docstrings: Sequence[Docstring], whole: Split) -> tuple[list[str], NDArray[np.int64]]:
    """Return the second texts and labels of the task "same".

    Half of a package's docstrings in each part of the split get the paragraph of another one of the same part.
    """
    seconds, labels = [_further(docstring) for docstring in docstrings], np.ones(len(docstrings), dtype=np.int64)
    for part in (whole.fit, whole.profiling, whole.test):
        for package in sorted({docstring.package for docstring in docstrings}):
            rows = [int(row) for row in part if docstrings[row].package == package]
            changed = rows[: len(rows) // 2]
            if len(changed) > 1:
                labels[changed] = 0
                for row, other in zip(changed, changed[1:] + changed[:1], strict=True):
                    seconds[row] = _further(docstrings[other])
    return seconds, labels


def _further(docstring: Docstring) -> str:
    """Return the first paragraph after the summary that has enough words; "" where there is none."""
    return next((part for part in docstring.paragraphs[1:] if len(part.split()) >= MIN_FURTHER), "")


def _files(package: str) -> Iterator[tuple[Path, str]]:
    """Yield source files and their paths from the package on, in an order that scatters folders."""
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        root = Path(folder)
        named = [(path, f"{package}/{path.relative_to(root).as_posix()}") for path in root.rglob("*.py")]
        kept = [(path, source) for path, source in named if LEFT_OUT.isdisjoint(source.split("/"))]
        yield from sorted(kept, key=lambda pair: sha256(pair[1].encode()).digest())


def _of_file(package: str, path: Path, source: str) -> Iterator[Docstring]:
    content = path.read_bytes()
    if len(content) > LARGEST_FILE:
        return
    try:
        with warnings.catch_warnings(action="ignore"):  # about escapes in strings of other packages
            tree = ast.parse(content)
    except (SyntaxError, ValueError):  # a template, or source for another Python
        return
    for kind, text in _documented(tree, "module"):
        docstring = Docstring(package, source, kind, paragraphs(text), parameters(text))
        if MIN_TOKENS <= len(TOKEN.findall(docstring.text)) <= MAX_TOKENS:
            yield docstring


def _documented(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, kind: str
) -> Iterator[tuple[str, str]]:
    """Yield kind and docstring of a definition and of those within it.

    Definitions inside functions are left out: they document nothing for others.
    """
    if text := ast.get_docstring(node):
        yield kind, text
    for inner in node.body if kind in ("module", "class") else ():
        match inner:
            case ast.ClassDef():
                yield from _documented(inner, "class")
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _documented(inner, "method" if kind == "class" else "function")


def _is_new(docstring: Docstring, seen: set[int]) -> bool:
    """Return whether fewer than half of its runs of words were seen, and then count them as seen."""
    words = WORD.findall(docstring.text.lower())
    runs = set(map(hash, zip(*(words[at:] for at in range(RUN)), strict=False))) or {hash(tuple(words))}
    if 2 * len(runs & seen) >= len(runs):
        return False
    seen |= runs
    return True
