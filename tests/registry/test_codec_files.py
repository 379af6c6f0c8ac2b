"""The files of an artifact, byte by byte, as its digest identifies it; what they cannot hold; what is wrong with others."""

from __future__ import annotations

import json
from hashlib import sha256

import numpy as np
import pytest

from pliant.errors import ArtifactError, DigestError, RegistryError
from pliant.registry import codec
from tests.registry.test_codec import FILES, Part, Sample, _sample


def test_an_artifact_is_written_as_every_version_wrote_it(tmp_path):
    rows = np.arange(3, dtype=np.int16)
    sample = Sample("grün", {2: Part(np.float64(0.5) * np.ones(1), 1), 10: Part(rows, 2.5)}, {"a/b": rows}, {}, ((1,),))
    codec.save(sample, tmp_path)
    assert (
        (tmp_path / "artifact.json").read_text(encoding="utf-8")
        == """{
 "kind": "sample",
 "schema": 3,
 "values": {
  "name": "grün",
  "parts": {
   "2": {
    "weight": {
     "$tensor": "parts/2/weight"
    },
    "share": 1.0
   },
   "10": {
    "weight": {
     "$tensor": "parts/10/weight"
    },
    "share": 2.5
   }
  },
  "arrays": {
   "a/b": {
    "$tensor": "arrays/a~1b"
   }
  },
  "options": {},
  "rows": [
   [
    1.0
   ]
  ],
  "note": null
 }
}
"""
    )
    listed = {file: sha256((tmp_path / file).read_bytes()).hexdigest() for file in FILES[:2]}
    assert (tmp_path / "digests.json").read_text() == json.dumps(listed, indent=1) + "\n"
    assert codec.digest(tmp_path) == sha256((tmp_path / "digests.json").read_bytes()).hexdigest()
    assert codec.kind(tmp_path) == "sample"


def test_a_file_that_cannot_be_read_and_one_that_is_not_there_are_told_apart(tmp_path):
    codec.save(_sample(np.zeros(1)), tmp_path)
    (tmp_path / "digests.json").unlink()
    for read, expected in ((codec.digest, "a list of digests"), (codec.kind, "a list of digests")):
        with pytest.raises(DigestError) as missing:
            read(tmp_path)
        assert (missing.value.expected, missing.value.actual) == (expected, "no such file")
    with pytest.raises(DigestError) as missing:
        codec.load(Sample, tmp_path, "0" * 64)
    assert missing.value.expected == "0" * 64
    (tmp_path / "digests.json").mkdir()
    with pytest.raises(RegistryError) as caught:
        codec.digest(tmp_path)
    assert str(caught.value) == f"{tmp_path / 'digests.json'} cannot be read: Is a directory"


@pytest.mark.parametrize("listed", ["[]", "{}", '{"artifact.json": "0"}', '["artifact.json", "tensors.safetensors"]'])
def test_a_list_of_digests_names_both_files(tmp_path, listed):
    codec.save(_sample(np.zeros(1)), tmp_path)
    (tmp_path / "digests.json").write_text(listed)
    with pytest.raises(ArtifactError, match=r"must name .* and nothing else"):
        codec.kind(tmp_path)
