"""The device that a test runs on: the same tests on the CPU and, where there is one, on the GPU."""

from __future__ import annotations

import pytest
import torch

DEVICES = ("cpu", pytest.param("cuda", marks=pytest.mark.gpu))


@pytest.fixture(scope="session", params=DEVICES)
def device(request) -> str:
    return request.param


def pytest_collection_modifyitems(items):
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
