"""What a capture asks of CUDA, held against a stand-in that behaves as torch 2.14 does, also where a capture fails."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext

import pytest
import torch

from pliant.models.graphs import CudaCapture, capture_stream

PRESENT = "present"


class Cuda:
    """Streams by name, graphs and pools. As in torch, a failed capture leaves its stream and its pool in use."""

    def __init__(self, monkeypatch) -> None:
        self.current, self.streams, self.pools = PRESENT, 0, 0
        self.captured: list[tuple[object, object]] = []  # pool and stream
        self.recording: set[object] = set()  # pools that a capture allocates to
        names = ("graph", "graph_pool_handle", "Stream", "current_stream", "set_stream", "stream", "CUDAGraph")
        for name in names:
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))
        monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
        monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", self.end_allocate, raising=False)

    class CUDAGraph:
        def replay(self) -> None:
            pass

    def Stream(self, device):  # noqa: N802
        self.streams += 1
        return Named(f"stream {self.streams}")

    def graph_pool_handle(self):
        self.pools += 1
        return self.pools

    def current_stream(self):
        return Named(self.current)

    def set_stream(self, stream) -> None:
        self.current = stream.name

    @contextmanager
    def stream(self, stream):
        before, self.current = self.current, stream.name
        try:
            yield
        finally:
            self.current = before

    @contextmanager
    def graph(self, graph, pool, stream):
        if pool in self.recording:
            raise RuntimeError("already recording to this pool")
        self.captured.append((pool, stream.name))
        before, self.current = self.current, stream.name
        self.recording.add(pool)
        try:
            yield
        except RuntimeError as error:
            raise RuntimeError("operation failed due to a previous error during capture") from error
        self.recording.remove(pool)
        self.current = before

    def end_allocate(self, device, pool) -> None:
        assert device == 1
        if pool not in self.recording:
            raise RuntimeError("not recording to this pool")
        self.recording.remove(pool)


class Named:
    def __init__(self, name: str) -> None:
        self.name = name

    def wait_stream(self, other) -> None:
        pass


@pytest.fixture
def cuda(monkeypatch):
    capture_stream.cache_clear()
    yield Cuda(monkeypatch)
    capture_stream.cache_clear()


def failing_when(condition):
    def call():
        if condition():
            raise RuntimeError("operation not permitted when stream is capturing")
        return torch.zeros(1)

    return call


def test_after_a_failed_capture_the_stream_is_put_back_and_others_can_be_captured(cuda):
    capture = CudaCapture(torch.device("cuda:1"))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="during capture"):
            capture(failing_when(lambda: bool(cuda.recording)))
        assert (cuda.current, cuda.recording) == (PRESENT, set())
    assert capture(lambda: torch.ones(1))().item() == 1
    assert cuda.current == PRESENT
    assert [pool for pool, _ in cuda.captured] == [1, 2, 3]


def test_a_call_that_fails_as_it_is_warmed_up_is_not_captured(cuda):
    capture = CudaCapture(torch.device("cuda:1"))
    with pytest.raises(RuntimeError, match="not permitted"):
        capture(failing_when(lambda: cuda.current != PRESENT))
    assert cuda.captured == []


def test_all_graphs_are_warmed_up_and_captured_on_one_stream_into_one_pool(cuda):
    capture = CudaCapture(torch.device("cuda:1"))
    for _ in range(5):
        capture(lambda: torch.zeros(1))
    assert (cuda.streams, set(cuda.captured)) == (1, {(1, "stream 1")})


def test_all_captures_of_a_process_share_one_stream(cuda):
    """Each once opened streams of its own, and so up to 32 of them, each with a workspace of cuBLAS."""
    for _ in range(3):
        CudaCapture(torch.device("cuda:1"))(lambda: torch.zeros(1))
    assert [stream for _, stream in cuda.captured] == ["stream 1"] * 3
