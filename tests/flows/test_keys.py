"""Every stage's key: another one whenever code that makes its result is another, and only then."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from pliant.flows import closure
from pliant.flows import stage as stages_of
from pliant.flows.closure import ROOT, code_of_tree, is_apart, libraries
from pliant.flows.packing.config import read
from pliant.flows.packing.stages import generator_stage, known_precision
from pliant.flows.stage import Stage, StageResult
from tests.fixtures.packing.tiny import setting, write_generator
from tests.flows.stages import SYSTEMS

PLAIN = """
LIMIT = 3

def f(values, least=1):
    total = 0
    for value in values:
        total += value
    return [each for each in range(total) if each > least]
"""

SAME = {
    "comments and layout": PLAIN.replace("total = 0", "total  =  0  # of all").replace("\n\n", "\n\n\n"),
    "docstrings": '"""What it is."""\n' + PLAIN.replace("    total = 0", '    """The sum."""\n    total = 0'),
    "text behind a constant": PLAIN.replace("LIMIT = 3", 'LIMIT = 3\n"""Of what."""'),
}
OTHER = {
    "a constant": PLAIN.replace("LIMIT = 3", "LIMIT = 4"),
    "an operator": PLAIN.replace("+=", "-="),
    "a default": PLAIN.replace("least=1", "least=2"),
    "a parameter": PLAIN.replace("least", "most"),
    "the name of a function": PLAIN.replace("def f", "def g"),
    "which local is meant": PLAIN.replace("if each > least", "if total > least"),
    "a text that is used": PLAIN.replace("return [", 'return ["x"] + ['),
}


@dataclass(frozen=True, slots=True)
class Keyed:
    """A stage's key; `names`: of the closure that it holds."""

    name: str
    stage: Stage
    key: Callable[[], str]
    names: frozenset[str]


def test_every_stage_is_tried_here(stages):
    known = {
        id(value): value.task
        for path in (ROOT / "flows").glob("*/stages.py")
        for module in (path, path.with_name("learn.py"), path.with_name("feedback.py"), path.with_name("champions.py"))
        if module.is_file()
        for value in vars(import_module(f"pliant.flows.{module.parent.name}.{module.stem}")).values()
        if isinstance(value, Stage)
    }
    untried = {task for identity, task in known.items() if identity not in {id(each.stage) for each in stages}}
    assert untried == {"generator"}, "which differs from another in nothing that a key holds"


def test_a_change_of_any_module_that_makes_a_result_changes_its_key(stages, changed):
    """Of those that several stages have, with one of them; a tenth of all, as each takes a while."""
    tried: set[str] = set()
    for stage in stages:
        before = stage.key()
        unseen = [name for name in sorted(stage.names - tried)[::10] if changed(stage.key, {name}) == before]
        assert unseen == [], stage.name
        assert stage.key() == before
        tried |= stage.names


def test_a_change_of_all_that_makes_nothing_of_a_result_changes_no_key(stages, changed):
    for stage in stages:
        modules = {name.partition(":")[0] for name in stage.names}
        others = {name for name in every_module() if name not in modules}
        assert any(name.startswith("pliant.serving.http") for name in others)
        assert changed(stage.key, others) == stage.key(), stage.name


def test_comments_and_docstrings_change_no_key(stages, monkeypatch):
    before = [stage.key() for stage in stages]
    text_of = closure.source
    monkeypatch.setattr(closure, "source", lambda module: f'# More.\n{text_of(module)}\n"""More."""\n# And more.\n')
    assert [stage.key() for stage in stages] == before


def test_what_only_reports_or_keeps_is_in_no_closure_and_what_is_left_out_is_there(stages):
    assert [name for stage in stages for name in stage.names if is_apart(name)] == []
    for pattern in closure.APART:
        assert any(is_apart(name) for name in every_module()), pattern


def test_a_measurement_by_another_version_of_a_library_is_another_one(stages, monkeypatch):
    before = {stage.name: stage.key() for stage in stages}
    version = stages_of.version
    for library in closure.LIBRARIES:
        monkeypatch.setattr(stages_of, "version", lambda name, new=library: "99" if name == new else version(name))
        other = {stage.name for stage in stages if stage.key() != before[stage.name]}
        using = {stage.name for stage in stages if library in libraries(stage.names)}
        assert other == using & MEASURED, library


def test_a_generator_is_made_again_for_a_change_of_the_engine_where_that_has_run_it(tmp_path, changed):
    write_generator(tmp_path)
    loaded, trained, timed = (
        read(overrides=setting(tmp_path, precision=word) | ({"generator": "embedded"} if own else {}))
        for word, own in (("float32", False), ("float32", True), ("auto", True))
    )
    engine, trainer = {"pliant.packing.engine.paged_engine"}, {"pliant.training.packing.generator"}
    for config, run in ((loaded, True), (trained, False), (timed, not known_precision(timed))):
        stage = generator_stage(config)
        assert (changed(lambda c=config, s=stage: s.key(c, None), engine) != stage.key(config, None)) == run
        assert changed(lambda c=config, s=stage: s.key(c, None), trainer) != stage.key(config, None)


MEASURED = {
    *("tokens/profile", "tokens/champion-digit"),
    *("cascade/lesson-things", "cascade/latencies-things"),
    *("cascade/outputs-things-profiling", "cascade/outputs-things-test"),
    *("bins/latencies-things", "bins/plan-things"),
    *("packing/lengths-things", "packing/steps-things", "packing/plan-things"),
}
"""What is measured; what is trained stays as it is when a library is upgraded."""


@pytest.fixture(scope="module")
def stages(tmp_path_factory) -> list[Keyed]:
    """Of all systems. No result is made."""
    found: list[Keyed] = []

    def note(stage, *args):
        names: set[str] = set()

        def follow(*made_by: Callable[..., object]) -> dict[str, str]:
            code = closure.closure(*made_by)
            names.update(code)
            return code

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(stages_of, "closure", follow)
            key = stage.key(*args)
        found.append(Keyed(key.rpartition("/")[0], stage, partial(stage.key, *args), frozenset(names)))
        return StageResult(stage.kind, None, key, f"sha256:{key}")

    for system, all_of in SYSTEMS.items():
        all_of(tmp_path_factory.mktemp(system), note)
    return found


@pytest.fixture
def changed(monkeypatch) -> Callable[[Callable[[], str], set[str]], str]:
    """Gives a key where these names of closures do something else."""
    text_of = closure.source

    def key_of(key: Callable[[], str], names: set[str]) -> str:
        with monkeypatch.context() as patched:
            patched.setattr(closure, "source", lambda module: otherwise(module, text_of(module), names))
            return key()

    return key_of


def otherwise(module: str, text: str, names: set[str]) -> str:
    """The text of a module, in which what the names stand for is another than it is."""
    items = {name.partition(":")[2] for name in names if name.partition(":")[0] == module}
    if not items:
        return text
    if items == {""}:
        return f"{text}\nOTHER = 1\n"
    tree = ast.parse(text)
    for statement in tree.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) if name in items:
                statement.body.append(ast.parse("OTHER = 1").body[0])
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value) if any(
                getattr(each, "id", "") in items for each in ast.walk(statement)
            ):
                statement.value = ast.Tuple([value, ast.Constant(1)], ast.Load())
    return ast.unparse(tree)


def every_module() -> list[str]:
    tops = {"": ROOT / "pliant"} | {
        name: ROOT / name for name in ("flows", "profiling", "registry", "serving", "training")
    }
    paths = (
        Path("pliant", top, path.relative_to(folder)) for top, folder in tops.items() for path in folder.rglob("*.py")
    )
    return sorted(".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths)


def code_of(source: str) -> str:
    return code_of_tree(ast.parse(source))


@pytest.mark.parametrize("change", SAME)
def test_what_changes_no_result_changes_no_code(change):
    assert SAME[change] != PLAIN
    assert code_of(SAME[change]) == code_of(PLAIN)


@pytest.mark.parametrize("change", OTHER)
def test_what_may_change_a_result_changes_the_code(change):
    assert code_of(OTHER[change]) != code_of(PLAIN)
