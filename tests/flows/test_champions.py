"""What a version remembers is read back as it was written, and what it does not remember is told."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pliant.errors import RegistryError
from pliant.flows.champions import RECORD, read_record, record_to_json, tagged_version
from pliant.registry.package import Published


@dataclass(frozen=True, slots=True)
class Record:
    threads: int


def version(**tags: str) -> Published:
    return Published("things", 3, "sha256:x", "models:/things/3", tags)


def test_a_record_comes_back_as_it_was_written():
    assert read_record(Record, version(**{RECORD: record_to_json(Record(4))}), "bins") == Record(4)


@pytest.mark.parametrize("text", ["{}", '{"threads": "four"}', '{"threads": 1, "cores": 2}', "threads"])
def test_a_record_of_other_settings_than_todays_is_told(text):
    with pytest.raises(RegistryError, match=r"the tag pliant\.record of models:/things/3 cannot be read"):
        read_record(Record, version(**{RECORD: text}), "bins")


def test_a_version_that_the_flow_did_not_publish_is_told():
    with pytest.raises(RegistryError, match=r"was not published by the bins flow: it has no tag pliant\.record"):
        read_record(Record, version(), "bins")
    with pytest.raises(RegistryError, match=r"was not published by the packing flow: it has no tag part"):
        tagged_version(version(part="newest"), "part", "packing")
    assert tagged_version(version(part="12"), "part", "packing") == 12
