"""Capturing on CUDA, with a stand-in for torch.cuda: one stream a process, and what a failed capture leaves is put back."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

from pliant.models import graphs
from pliant.models.graphs import CudaCapture


class FakeCuda:
    """Keeps the current stream and the pools in use as torch 2.14 does: a capture that cannot end leaves both."""

    def __init__(self) -> None:
        self.present, self.made, self.pools, self.in_use = "default", [], 0, None
        self.fails_at_the_end = False

    def make_stream(self, device):
        self.made.append(FakeStream(len(self.made)))
        return self.made[-1]

    def set_stream(self, stream) -> None:
        self.present = stream

    def pool(self) -> int:
        self.pools += 1
        return self.pools

    @contextmanager
    def stream(self, stream):
        before, self.present = self.present, stream
        yield
        self.present = before

    @contextmanager
    def graph(self, graph, pool, stream):
        if self.in_use == pool:
            raise RuntimeError("the pool is recorded to already")
        before, self.present, self.in_use = self.present, stream, pool
        try:
            yield
        finally:
            if self.fails_at_the_end:
                raise RuntimeError("operation failed due to a previous error during capture")
        self.present, self.in_use = before, None

    def end_allocation(self, device: int, pool: int) -> None:
        if self.in_use != pool:
            raise RuntimeError("not currently recording to mempool_id")
        self.in_use = None


class FakeStream:
    def __init__(self, number: int) -> None:
        self.number = number

    def wait_stream(self, other) -> None: ...


class Present(str):
    def wait_stream(self, other) -> None: ...


class FakeGraph:
    def __init__(self) -> None:
        self.replayed = 0

    def replay(self) -> None:
        self.replayed += 1


@pytest.fixture
def cuda(monkeypatch) -> FakeCuda:
    fake = FakeCuda()
    fake.present = Present("default")

    @contextmanager
    def device(index):
        yield

    stand_ins = {
        "current_device": lambda: 1,
        "current_stream": lambda: fake.present,
        "graph_pool_handle": fake.pool,
        "Stream": fake.make_stream,
        "set_stream": fake.set_stream,
        "stream": fake.stream,
        "graph": fake.graph,
        "CUDAGraph": FakeGraph,
        "device": device,
        "synchronize": lambda: None,
    }
    for name, value in stand_ins.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", fake.end_allocation, raising=False)
    graphs.capture_stream.cache_clear()
    yield fake
    graphs.capture_stream.cache_clear()


def test_all_captures_of_a_process_share_one_stream(cuda):
    """Each once opened a stream of its own, and so 32 of them, each with its workspace of cuBLAS."""
    seen = []
    for device in ("cuda", "cuda:1"):
        capture = CudaCapture(torch.device(device))
        for _ in range(3):
            capture(lambda: seen.append(cuda.present))()
    assert len(cuda.made) == 1
    assert set(seen) == {cuda.made[0]}
    assert cuda.present == "default"


def test_a_gpu_of_another_index_has_a_stream_of_its_own(cuda):
    for device in ("cuda:0", "cuda:1"):
        CudaCapture(torch.device(device))(lambda: None)
    assert len(cuda.made) == 2


def test_after_a_failed_capture_the_stream_is_put_back_and_the_next_one_succeeds(cuda):
    capture = CudaCapture(torch.device("cuda"))
    cuda.fails_at_the_end = True
    with pytest.raises(RuntimeError, match="previous error during capture"):
        capture(lambda: None)
    assert cuda.present == "default"
    assert cuda.in_use is None
    cuda.fails_at_the_end = False
    capture(lambda: None)()
    assert cuda.present == "default"


def test_a_call_that_fails_before_its_capture_puts_the_stream_back_too(cuda):
    def broken():
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        CudaCapture(torch.device("cuda"))(broken)
    assert cuda.present == "default"
