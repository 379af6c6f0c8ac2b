"""Usual pictures are decoded in several processes; while none has started, and where one has died, in threads."""

from __future__ import annotations

import asyncio
import io
import os
import signal

import numpy as np
import pytest
from PIL import Image

from pliant.errors import InputError
from pliant.models.image import decode
from pliant.serving.tokens.decoders import DecoderProcesses
from tests.fixtures.fakes import until


def photo(size: int) -> bytes:
    file = io.BytesIO()
    Image.linear_gradient("L").convert("RGB").resize((size, size)).save(file, "JPEG")
    return file.getvalue()


async def test_until_a_process_has_started_and_where_one_has_died_a_thread_decodes():
    body = photo(600)
    wanted = decode(body, 16, 10**6)
    processes = DecoderProcesses(2)
    assert np.array_equal(await processes.decode(body, 16, 10**6), wanted)
    await until(lambda: processes.free == 2)
    with pytest.raises(InputError, match="image is not readable"):
        await processes.decode(b"no image", 16, 10**6)
    assert processes.free == 2
    for process in processes._free:
        os.kill(process.pid, signal.SIGKILL)
    both = await asyncio.gather(*(processes.decode(body, 16, 10**6) for _ in range(2)))
    assert all(np.array_equal(pixels, wanted) for pixels in both)
    await until(lambda: processes.free == 2)


async def test_an_image_that_nobody_waits_for_any_longer_does_not_end_its_process():
    body = photo(1400)
    processes = DecoderProcesses(1)
    await processes.decode(body, 16, 10**7)
    await until(lambda: processes.free == 1)
    (process,) = processes._free
    former = process.pid
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.0001):
            await processes.decode(body, 16, 10**7)
    assert processes.free == 0
    await until(lambda: processes.free == 1)
    assert process.pid == former
