"""A data set that notes which pictures were looked at."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from training.data import ImageData
from training.pictures import Images


@dataclass
class WatchedImages:
    images: Images
    seen: set[int] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.images)

    def original(self, index):
        self.seen.add(int(index))
        return self.images.original(index)

    def batch(self, index, size):
        self.seen.update(int(i) for i in index)
        return self.images.batch(index, size)


def watched(data: ImageData) -> tuple[ImageData, set[int]]:
    """The same data, and the indices looked at so far."""
    images = WatchedImages(data.images)
    return replace(data, images=images), images.seen
