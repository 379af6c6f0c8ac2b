"""What of a text changes what it does, and so a key: the rest of closures is tested by `qa/flows/test_closure.py`."""

from __future__ import annotations

import ast

import pytest

from pliant.flows.closure import code_of_tree

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
    "local names": PLAIN.replace("total", "amount").replace("each", "one"),
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


def code_of(source: str) -> str:
    return code_of_tree(ast.parse(source))


@pytest.mark.parametrize("change", SAME)
def test_what_changes_no_result_changes_no_code(change):
    assert SAME[change] != PLAIN
    assert code_of(SAME[change]) == code_of(PLAIN)


@pytest.mark.parametrize("change", OTHER)
def test_what_may_change_a_result_changes_the_code(change):
    assert code_of(OTHER[change]) != code_of(PLAIN)
