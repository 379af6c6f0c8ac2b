"""The faults that the benchmark provokes are the ones that it means."""

from __future__ import annotations

import asyncio
import io

import pytest
from PIL import Image

from benchmarks.tokens import faults
from pliant.errors import InputError
from serving.tokens.images import decode
from tests.fixtures.load_samples import bundle


def test_both_altered_artifacts_are_refused_by_name_and_digests():
    assert faults.altered_artifact(bundle()) == 2


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_the_huge_picture_is_a_valid_header_of_a_few_hundred_bytes():
    huge = faults._huge_png()
    assert len(huge) < 500
    assert Image.open(io.BytesIO(huge)).size == (10_000, 10_000)
    with pytest.raises(InputError, match="image"):
        asyncio.run(decode(huge, 16, 25_000_000))


def test_every_fault_changes_one_field_of_a_good_request():
    for fault, _ in faults.FAULTS.values():
        assert len(fault) == 1
        assert len(faults._expanded(fault)) == 1
