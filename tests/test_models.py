"""Which tests run once more with AVX2 alone: those that may compute with models, by what they import."""

from __future__ import annotations

from tests.fixtures.places import ROOT
from tests.models import may_compute, reaches_torch


def test_every_test_of_a_model_and_of_training_is_among_them_and_none_of_a_pure_decision():
    def reach(*names: str) -> list[bool]:
        return [may_compute(ROOT / "tests" / f"{name}.py") for name in names]

    computing = ("pliant/tokens/test_runtime", "training/tokens/test_task", "flows/test_stages")
    assert all(reach(*computing, "pliant/bins/runtimes/test_runtime", "pliant/packing/engine/test_paged_engine"))
    commanding = ROOT / "tests" / "benchmarks" / "tokens" / "test_demo.py"
    assert reaches_torch(commanding) and not may_compute(commanding)
    pure = (
        "pliant/test_tenants",
        "pliant/tokens/test_adaptive",
        "deploy/test_compose",
        "serving/http/test_error_shapes",
    )
    assert not any(reach(*pure))


def test_an_import_in_a_function_and_one_through_a_fixture_count(tmp_path):
    inside, through = tmp_path / "inside.py", tmp_path / "through.py"
    inside.write_text("def test():\n    from pliant.tokens.runtime import Runtime\n")
    through.write_text("from tests.fixtures.packing.generators import tiny_generator\n")
    assert reaches_torch(inside) and reaches_torch(through)
    other = tmp_path / "other.py"
    other.write_text("import numpy\nfrom pliant.errors import PliantError\n")
    assert not reaches_torch(other)
