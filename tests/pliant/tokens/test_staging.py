"""Staging: the first rows of the buffers hold the batch, whatever its size; the buffers never move."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pliant.tokens.staging import CHUNK, Staging
from tests.fixtures.tokens.samples import IMAGE_SIZE, random_images


@pytest.mark.parametrize("count", [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_a_batch_lies_in_the_first_rows_in_its_order(count):
    staging, images = Staging(3 * CHUNK, IMAGE_SIZE, torch.device("cpu")), random_images(count)
    staging.load(list(images), range(count))
    assert np.array_equal(staging.pixel_BHWC[:count].numpy(), images)
    assert staging.task_B[:count].tolist() == list(range(count))


def test_a_further_batch_comes_to_the_same_place():
    staging = Staging(4, IMAGE_SIZE, torch.device("cpu"))
    staging.load(list(random_images(4)), [0, 1, 2, 3])
    addresses = staging.pixel_BHWC.data_ptr(), staging.task_B.data_ptr()
    staging.load(list(random_images(2, seed=5)), [7, 8])
    assert (staging.pixel_BHWC.data_ptr(), staging.task_B.data_ptr()) == addresses
    assert np.array_equal(staging.pixel_BHWC[:2].numpy(), random_images(2, seed=5))
    assert staging.task_B.tolist() == [7, 8, 2, 3]


def test_a_batch_that_was_sent_ahead_is_loaded_from_where_it_waits_and_another_is_not():
    staging, first, second = (
        Staging(4, IMAGE_SIZE, torch.device("cpu")),
        *map(list, (random_images(3), random_images(3, 1))),
    )
    staging.send(first)
    staging.send(second)
    former = [image.copy() for image in first]
    first[0][:] = 0  # the array of the message, which is no longer read
    staging.load(first, [0, 1, 2])
    assert np.array_equal(staging.pixel_BHWC[:3].numpy(), np.stack(former))
    staging.load(first, [0, 1, 2])
    assert not staging.pixel_BHWC[0].any(), "it waits for one load only"
    staging.load(second[:2], [4, 5])
    assert np.array_equal(staging.pixel_BHWC[:2].numpy(), np.stack(second[:2]))
    staging.load(second, [4, 5, 6])
    assert np.array_equal(staging.pixel_BHWC[:3].numpy(), np.stack(second)) and staging.task_B.tolist()[:3] == [4, 5, 6]
