"""What a version remembers is read back as it was written, and what it does not remember is told."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from flows.live import RECORD, record_of, text_of, version_of
from pliant.errors import RegistryError
from registry.package import Published


@dataclass(frozen=True, slots=True)
class Record:
    threads: int


def version(**tags: str) -> Published:
    return Published("things", 3, "sha256:x", "models:/things/3", tags)


def test_a_record_comes_back_as_it_was_written():
    assert record_of(Record, version(**{RECORD: text_of(Record(4))}), "bins") == Record(4)


@pytest.mark.parametrize("text", ["{}", '{"threads": "four"}', '{"threads": 1, "cores": 2}', "threads"])
def test_a_record_of_other_settings_than_todays_is_told(text):
    with pytest.raises(RegistryError, match=r"the tag pliant\.record of models:/things/3 cannot be read"):
        record_of(Record, version(**{RECORD: text}), "bins")


def test_a_version_that_the_flow_did_not_publish_is_told():
    with pytest.raises(RegistryError, match=r"was not published by the bins flow: it has no tag pliant\.record"):
        record_of(Record, version(), "bins")
    with pytest.raises(RegistryError, match=r"was not published by the packing flow: it has no tag part"):
        version_of(version(part="newest"), "part", "packing")
    assert version_of(version(part="12"), "part", "packing") == 12
