"""What the flow of bins looks at before all work."""

from __future__ import annotations

import pytest

from flows.bins.config import read
from flows.bins.stages import load_streams
from pliant.errors import InputError
from pliant.progress import silent
from training.loading import POINTER


def test_a_spoilt_encoder_of_the_last_stream_is_refused_before_the_first_is_trained(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(POINTER)
    streams = [{"name": name, "encoder": f"path:{tmp_path}"} for name in ("one", "two")]
    with pytest.raises(InputError, match=r"model\.safetensors is a pointer of Git LFS"):
        load_streams(read(overrides={"streams": streams}), silent)
