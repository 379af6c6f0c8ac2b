"""Which journals the lengths of real requests are read from."""

from __future__ import annotations

from pliant.flows.bins.config import EdgesConfig, StreamConfig
from pliant.flows.bins.stages import digests, observe
from pliant.progress import silent
from pliant.protocol import Arrived, JournalEntry, Request
from pliant.serving.journal import FileRecorder
from tests.fixtures.bins.encoders import tiny_encoder


def record(path, lengths, **options) -> None:
    recorder = FileRecorder(path, **options)
    for number, length in enumerate(lengths):
        recorder(JournalEntry(number, Arrived(Request(number, number, number + 1, "mine", 1.0, length)), ()))
    recorder.close()


def test_a_restart_a_further_generation_and_a_full_file_lose_no_request(tmp_path):
    journal = tmp_path / "bins.jsonl"
    record(journal, [1, 1])
    record(journal, [2] * 20, segment_bytes=500)
    record(tmp_path / "bins-2.jsonl", [3])
    record(tmp_path / "bins-2.jsonl", [4])
    (tmp_path / "bins-other.jsonl").write_text("not a journal of this service\n")
    stream = StreamConfig(lengths=(f"journal:{journal}",))
    seen = observe(stream, "mine", tiny_encoder(max_length=8), None, EdgesConfig(least=24), silent)
    assert seen.requests.tolist() == [0, 2, 20, 1, 1, 0, 0, 0, 0]
    assert len(digests(stream)) > 5
