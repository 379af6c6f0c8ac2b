"""The embedded corpus: docstrings of the installed scientific packages, English texts of 5 to 1,000 tokens.

They are read from the packages' source files (nothing is imported) and labelled by what the source says of them:

    package      which package the docstring comes from
    kind         what it documents: a class, a function, a method or a module
    parameters   how many parameters it documents, as log2(1 + count): a regression
    same         a pair: do a summary and a further paragraph come from one docstring? (else from two of one package)

The names of all packages and their import aliases ("numpy", "np", "plt", ...) are taken out of all texts, so that neither
a name nor its absence gives the package away; so are paragraphs of doctests, which are code. A docstring that repeats
others (inherited, or made from a template) is left out. All docstrings of a file are to fit, or all are held out.
What is installed makes the corpus: another version of a package gives other texts and another fingerprint.

Shape suffixes: R rows, S source files.
"""

from __future__ import annotations

import ast
import gc
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError
from training.data import Split, cut
from training.text_data import Shares, TextData, assemble

PACKAGES = ("matplotlib", "networkx", "numpy", "pandas", "scipy", "sklearn", "sympy", "torch", "transformers")
TASKS = ("package", "kind", "parameters", "same")
KINDS = ("class", "function", "method", "module")
SHARES = Shares()
PER_PACKAGE, PER_FILE = 1000, 10  # docstrings at most; those of one file say much the same
FEWEST_TOKENS, MOST_TOKENS = 5, 1000  # words and punctuation marks
LEAST_WORDS = 16  # of a text that a package can be told from
UNTOLD = "numpy"  # its matter and its manner are scipy's: it is no class of "package"
LEAST_FURTHER = 8  # words of a paragraph in a pair
LARGEST_FILE = 60_000  # bytes: to read a larger one costs more than its docstrings bring
LEFT_OUT = frozenset({"test", "tests", "testing", "_testing", "vendor", "_vendor", "vendored", "externals"})
RUN = 5  # words: docstrings that share half of their runs repeat one another

NAMES = re.compile(
    r"(?<![a-z])(?:(?:py)?torch|scikit[- ]learn|hugging ?face|matplotlib|pyplot|transformers|networkx|sklearn"
    r"|pandas|numpy|scipy|sympy|mpl|plt|np|pd|nx|sp)(?![a-z])\.?",
    re.IGNORECASE,
)
TOKEN = re.compile(r"\w+|[^\w\s]")
WORD = re.compile(r"[a-z]+")
BLANK_LINE = re.compile(r"\n\s*\n")
RULE = re.compile(r"^\s*[-=~^*#.`]{3,}\s*$", re.MULTILINE)  # under or around a heading
DOCTEST = re.compile(r"^\s*>>>", re.MULTILINE)

SPHINX = re.compile(r"^\s*:param [^:]+:", re.MULTILINE)
NUMPY_SECTION = re.compile(r"^(?:Other )?Parameters\n-{3,}\n((?:.*\n?)*?)(?=^\S.*\n-{3,}|\Z)", re.MULTILINE)
NUMPY_ENTRY = re.compile(r"^(\*{0,2}\w+(?:, *\*{0,2}\w+)*) *(?::.*)?$", re.MULTILINE)
GOOGLE_SECTION = re.compile(r"^(?:Args|Arguments|Parameters):\n((?:[ \t]+.*\n?|\n)*)", re.MULTILINE)
GOOGLE_ENTRY = re.compile(r"^`?\*{0,2}\w+`? *(?:\(.*\))? *:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Docstring:
    """`source` is the file as a path from the package on; the first of the `paragraphs` is the summary."""

    package: str
    source: str
    kind: str  # one of KINDS
    paragraphs: tuple[str, ...]
    parameters: int  # that it documents

    @property
    def text(self) -> str:
        return "\n".join(self.paragraphs)


def load(
    task: str,
    name: str | None = None,
    seed: int = 0,
    limit: int | None = None,
    shares: Shares = SHARES,
    packages: Sequence[str] = PACKAGES,
) -> TextData:
    """One of `TASKS`, under `name` if one is given; `limit` keeps that many rows. Raises `InputError`."""
    if task not in TASKS:
        raise InputError("task", task, f"one of {', '.join(TASKS)}")
    found = _of_use(task, corpus(packages))
    whole = split([one.source for one in found], seed, shares)
    first, second, labels, classes = _columns(task, found, whole)
    return assemble(name or task, first, second, labels, classes, cut(whole, limit))


def corpus(packages: Sequence[str] = PACKAGES) -> tuple[Docstring, ...]:
    """The docstrings of those packages that are installed, always in the same order. Raises `InputError`.

    Those of the usual packages are read once a process: that takes seconds, and every system trains on them.
    """
    return _usual() if tuple(packages) == PACKAGES else _read(packages)


@cache
def _usual() -> tuple[Docstring, ...]:
    return _read(PACKAGES)


def _read(packages: Sequence[str]) -> tuple[Docstring, ...]:
    seen: set[int] = set()
    with _uncollected():
        found = [one for package in packages for one in _of_package(package, seen)]
    present = sorted({one.package for one in found})
    if len(present) < 2:
        raise InputError("the installed packages", ", ".join(present) or "none", f"two of {', '.join(packages)}")
    return tuple(found)


def split(sources: Sequence[str], seed: int, shares: Shares) -> Split:
    """Whole sources are held out until they have their share of the rows; the rest is to fit.

    What is held out goes to test and profiling row by row, whatever its source: what is planned on one of them can hold
    on the other only if both are drawn alike.
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
    """How many parameters a docstring documents, in the manner of numpy, of Google or of Sphinx."""
    if found := SPHINX.findall(docstring):
        return len(found)
    if sections := NUMPY_SECTION.findall(docstring):
        return sum(names.count(",") + 1 for section in sections for names in NUMPY_ENTRY.findall(section))
    return sum(len(GOOGLE_ENTRY.findall(_dedented(section))) for section in GOOGLE_SECTION.findall(docstring))


def paragraphs(docstring: str) -> tuple[str, ...]:
    """Without names of packages, doctests and rules under headings; all on one line each."""
    parts = (DOCTEST.split(part, maxsplit=1)[0] for part in BLANK_LINE.split(docstring))
    joined = (" ".join(NAMES.sub("", RULE.sub("", part)).split()) for part in parts)
    return tuple(part for part in joined if part)


def _of_use(task: str, found: Sequence[Docstring]) -> list[Docstring]:
    match task:
        case "kind":
            return _balanced(found)
        case "package":
            told = (one for one in found if one.package != UNTOLD)
            return [one for one in told if len(WORD.findall(one.text.lower())) >= LEAST_WORDS]
        case "parameters":
            return [one for one in found if one.parameters]
    return [one for one in found if _further(one)]  # same


def _balanced(found: Sequence[Docstring]) -> list[Docstring]:
    """As many of each kind as of the rarest, taken from all packages in turn."""
    turn: Counter[tuple[str, str]] = Counter()
    queues: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for at, one in enumerate(found):
        queues[one.kind].append((turn[one.kind, one.package], at))
        turn[one.kind, one.package] += 1
    fewest = min(map(len, queues.values()))
    return [found[at] for at in sorted(at for queue in queues.values() for _, at in sorted(queue)[:fewest])]


def _columns(
    task: str, found: Sequence[Docstring], whole: Split
) -> tuple[list[str], list[str] | None, NDArray[Any], tuple[str, ...]]:
    """First texts, second ones, labels and class names."""
    match task:
        case "same":
            return [one.paragraphs[0] for one in found], *_seconds(found, whole), ("other", "same")
        case "parameters":
            return [one.text for one in found], None, np.log2([1.0 + one.parameters for one in found]), ()
    named = [one.kind if task == "kind" else one.package for one in found]
    classes = tuple(sorted(set(named)))
    return [one.text for one in found], None, np.array([classes.index(name) for name in named], dtype=np.int64), classes


def _seconds(found: Sequence[Docstring], whole: Split) -> tuple[list[str], NDArray[np.int64]]:
    """Every other docstring of a package is given the paragraph of another one of the same part of the split."""
    seconds, labels = [_further(one) for one in found], np.ones(len(found), dtype=np.int64)
    for part in (whole.fit, whole.profiling, whole.test):
        for package in sorted({one.package for one in found}):
            rows = [int(row) for row in part if found[row].package == package]
            changed = rows[: len(rows) // 2]
            if len(changed) > 1:
                labels[changed] = 0
                for row, other in zip(changed, changed[1:] + changed[:1], strict=True):
                    seconds[row] = _further(found[other])
    return seconds, labels


def _further(one: Docstring) -> str:
    """The first paragraph after the summary that says something; empty where there is none."""
    return next((part for part in one.paragraphs[1:] if len(part.split()) >= LEAST_FURTHER), "")


@contextmanager
def _uncollected() -> Iterator[None]:
    """Syntax trees hold no cycles: to look for some in them takes a third of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _of_package(package: str, seen: set[int]) -> list[Docstring]:
    """At most PER_PACKAGE; `seen` are the runs of words of all docstrings kept so far."""
    found: list[Docstring] = []
    for path, source in _files(package):
        new = (one for one in _of_file(package, path, source) if _is_new(one, seen))
        found += [one for one, _ in zip(new, range(PER_FILE), strict=False)]
        if len(found) >= PER_PACKAGE:
            break
    return found[:PER_PACKAGE]


def _files(package: str) -> Iterator[tuple[Path, str]]:
    """Source files and their paths from the package on, in an order that scatters folders."""
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        root = Path(folder)
        named = [(path, f"{package}/{path.relative_to(root).as_posix()}") for path in root.rglob("*.py")]
        kept = [(path, source) for path, source in named if LEFT_OUT.isdisjoint(source.split("/"))]
        yield from sorted(kept, key=lambda one: sha256(one[1].encode()).digest())


def _of_file(package: str, path: Path, source: str) -> Iterator[Docstring]:
    content = path.read_bytes()
    if len(content) > LARGEST_FILE:
        return
    try:
        with warnings.catch_warnings(action="ignore"):  # of escapes in the strings of others
            tree = ast.parse(content)
    except (SyntaxError, ValueError):  # a template, or of another Python
        return
    for kind, text in _documented(tree, "module"):
        told = Docstring(package, source, kind, paragraphs(text), parameters(text))
        if FEWEST_TOKENS <= len(TOKEN.findall(told.text)) <= MOST_TOKENS:
            yield told


def _documented(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, kind: str
) -> Iterator[tuple[str, str]]:
    """Kind and docstring of a definition and of those within it; within functions nothing is documented for others."""
    if text := ast.get_docstring(node):
        yield kind, text
    for inner in node.body if kind in ("module", "class") else ():
        match inner:
            case ast.ClassDef():
                yield from _documented(inner, "class")
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _documented(inner, "method" if kind == "class" else "function")


def _is_new(one: Docstring, seen: set[int]) -> bool:
    """Whether fewer than half of its runs of words were seen; then it counts as seen from now on."""
    words = WORD.findall(one.text.lower())
    runs = set(map(hash, zip(*(words[at:] for at in range(RUN)), strict=False))) or {hash(tuple(words))}
    if 2 * len(runs & seen) >= len(runs):
        return False
    seen |= runs
    return True


def _dedented(section: str) -> str:
    """The lines that are indented least lose their indentation; the others keep some."""
    indents = [len(line) - len(line.lstrip()) for line in section.splitlines() if line.strip()]
    return "\n".join(line[min(indents, default=0) :] for line in section.splitlines())
