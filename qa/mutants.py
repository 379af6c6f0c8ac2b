"""Plants random faults (mutants) in a copy of the code, one at a time, and counts those that the fast tests catch.

`make mutants` runs it in an environment of its own, which has cosmic-ray for the faults; the tests run with `.venv`. Each
fault is tried with the tests that mirror its module, then with others of the same folder and those that import the module,
until one fails. What survives may be caught by a test further away, and may be a fault that nobody can notice: look at it.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import SimpleQueue

import parso
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("pliant",)
TARGET = 0.85  # share of the faults that are caught
SECONDS = 600.0  # of one run of tests, after which a fault counts as caught: it hangs
MOST_FILES = 15  # of tests, besides those that mirror the module
FAST = "not slow"


class RemoveCall(Operator):
    """Replaces a statement that only calls something by `pass`: no flush, no lock, no event."""

    def mutation_positions(self, node):
        if node.type == "simple_stmt" and node.children[0].type in ("atom_expr", "await_expr"):
            yield node.start_pos, node.end_pos

    def mutate(self, node, index):
        replacement = parso.parse("pass\n").children[0]
        replacement.get_first_leaf().prefix = node.get_first_leaf().prefix
        return replacement

    @classmethod
    def examples(cls):
        return ()


OPERATORS = {name: get_operator(name)() for name in operator_names() if "Variable" not in name}
OPERATORS["RemoveCall"] = RemoveCall()


@dataclass(frozen=True)
class Mutant:
    path: str
    line: int
    operator: str
    code: str  # the whole file with the fault

    @property
    def diff(self) -> str:
        """Return the lines that differ."""
        before, after = (ROOT / self.path).read_text(encoding="utf-8").splitlines(), self.code.splitlines()
        return "\n".join(line for line in difflib.ndiff(before, after) if line[0] in "+-")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="faults to plant")
    parser.add_argument("--seed", type=int, default=0, help="draws the same faults again in the same code")
    parser.add_argument("--folders", nargs="*", default=FOLDERS, help="folders or files to plant faults in")
    args = parser.parse_args()
    mutants, survivors = draw(args.count, args.seed, args.folders), []
    if not mutants:
        sys.exit("No fault can be planted there: name folders or files of Python that git knows.")
    with tempfile.TemporaryDirectory(prefix="pliant-mutants-") as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        workers = len(os.sched_getaffinity(0))
        for number in range(workers):
            copies.put(copy_of_the_code(Path(folder, str(number))))
        with ThreadPoolExecutor(workers) as pool:
            caught_by = pool.map(lambda mutant: catch(mutant, copies), mutants)
            for done, (mutant, by) in enumerate(zip(mutants, caught_by, strict=True), start=1):
                print(f"{done}/{len(mutants)} {mutant.path}:{mutant.line} {by or 'SURVIVED'}", flush=True)
                survivors += [] if by else [mutant]
    for mutant in survivors:
        print(f"\n{mutant.path}:{mutant.line} {mutant.operator}\n{mutant.diff}")
    share = 1 - len(survivors) / len(mutants)
    print(f"\ncaught {len(mutants) - len(survivors)} of {len(mutants)} faults, {share:.0%}; the target is {TARGET:.0%}")
    return 0 if share >= TARGET else 1


def draw(count: int, seed: int, folders: list[str]) -> list[Mutant]:
    """Return random faults: a file by its length, then a line of it, a kind of fault, and one of that kind."""
    chance = random.Random(seed)
    listed = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [path for path in listed.stdout.split() if path.endswith(".py")]
    lengths = [len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in paths]
    mutants: dict[tuple[str, str, int], Mutant] = {}
    for path in chance.choices(paths, lengths, k=50 * count) if paths else ():
        if len(mutants) < count and (places := places_in(path)):
            line = chance.choice(sorted(places))
            kind = chance.choice(sorted(places[line]))
            name, occurrence = chance.choice(places[line][kind])
            source = (ROOT / path).read_text(encoding="utf-8")
            code = mutate_code(source, OPERATORS[name], occurrence)
            with suppress(SyntaxError):  # what nobody can run is no fault
                if code and ast.dump(ast.parse(code)) != ast.dump(ast.parse(source)):
                    mutants[path, name, occurrence] = Mutant(path, line, name, code)
    return list(mutants.values())


@cache
def places_in(path: str) -> dict[int, dict[str, list[tuple[str, int]]]]:
    """Return the possible faults of a file as operator and occurrence, by line and kind."""
    source = (ROOT / path).read_text(encoding="utf-8")
    nodes = list(ast_nodes(get_ast(source)))
    annotations = [  # nobody runs them, as every file postpones their evaluation
        ((part.lineno, part.col_offset), (part.end_lineno, part.end_col_offset))
        for node in ast.walk(ast.parse(source))
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if isinstance(part, ast.expr)
    ]
    places: dict[int, dict[str, list[tuple[str, int]]]] = {}
    for name, operator in OPERATORS.items():
        starts = (start for node in nodes for start, _ in operator.mutation_positions(node))
        for occurrence, start in enumerate(starts):
            if not any(begin <= start < end for begin, end in annotations):
                kind = name.partition("Operator_")[0]
                places.setdefault(start[0], {}).setdefault(kind, []).append((name, occurrence))
    return places


def copy_of_the_code(folder: Path) -> Path:
    """Copy the working tree, which keeps its environment and its state to itself."""
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".git", ".venv", ".pliant", ".*_cache", "mlruns"))
    (folder / ".venv").symlink_to(ROOT / ".venv")
    return folder


def catch(mutant: Mutant, copies: SimpleQueue[Path]) -> str:
    """Return the first test that fails with the fault, in one of the copies; empty if none does."""
    copy = copies.get()
    file = copy / mutant.path
    file.write_text(mutant.code, encoding="utf-8")
    try:
        return next((by for files in tests_of(mutant.path) if files and (by := run(files, copy))), "")
    finally:
        shutil.copy(ROOT / mutant.path, file)
        copies.put(copy)


def tests_of(path: str) -> tuple[list[str], list[str]]:
    """Return the tests that mirror a module, and others that may notice a fault in it, the nearest first."""
    folder, module = f"tests/{Path(path).parent}", path.removesuffix(".py").replace("/", ".")
    package, _, name = module.rpartition(".")
    imports = re.compile(rf"\b{re.escape(module)}\b|from {re.escape(package)} import [^\n]*\b{name}\b")
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    texts = {test.relative_to(ROOT).as_posix(): test.read_text(encoding="utf-8") for test in tests}
    mirror = [f"{folder}/test_{name}.py"] if f"{folder}/test_{name}.py" in texts else []
    near = [test for test in texts if test.rpartition("/")[0] == folder]
    others = [test for test in [*filter(lambda test: imports.search(texts[test]), texts), *near] if test not in mirror]
    return mirror, [*list(dict.fromkeys(others))[:MOST_FILES], "tests/test_architecture.py"]


def run(files: list[str], copy: Path) -> str:
    """Return the first of these tests that fails, or "no end"; empty if none does."""
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    options, pipe = ["-x", "-q", "-p", "no:cacheprovider", "--tb=no", "-rfE", "-m"], subprocess.PIPE
    command = [str(ROOT / ".venv/bin/python"), "-m", "pytest", *options, FAST, *files]
    with subprocess.Popen(
        command, cwd=copy, env=environment, stdout=pipe, text=True, start_new_session=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return "no end"
        finally:
            with suppress(ProcessLookupError):  # also what the tests have started
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode in (0, 5):  # 5: there is no fast test among them
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    return failed[1] if failed else "the tests cannot be collected"


if __name__ == "__main__":
    sys.exit(main())
