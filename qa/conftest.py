"""What holds for every test holds here, too; and the targets of a test, which fails at its end if one was missed."""

from __future__ import annotations

import pytest

from tests.conftest import one_torch_thread, process_after_file, process_after_test

__all__ = ["one_torch_thread", "process_after_file", "process_after_test"]


@pytest.fixture
def targets(request):
    from qa.targets import Targets  # a bare machine with a GPU has not all that this imports

    return Targets(request.node.name.removeprefix("test_").replace("_", " "))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    result = yield
    if noted := item.funcargs.get("targets"):
        assert not noted.missed, "\n".join(noted.missed)
    return result
