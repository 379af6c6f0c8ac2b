"""An artifact comes back from its folder as it was, or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps
from numpy.typing import NDArray
from safetensors import numpy as safetensors

from pliant.bfloat16 import BFLOAT16
from pliant.bins.artifact import Bins, Encoder
from pliant.errors import ArtifactError, DigestError, FormerSchemaError, InputError, RegistryError, SchemaError
from pliant.packing.artifact import Generator
from pliant.registry import codec
from pliant.registry.codec import structure
from pliant.registry.folder import replace_folder
from pliant.registry.store import FolderStore
from pliant.tokens.artifact import Backbone
from tests.fixtures.bins.encoders import tiny_encoder
from tests.fixtures.bins.tiny import some_bins
from tests.fixtures.cascade.classifiers import tiny_bag, tiny_classifier, tiny_exit
from tests.fixtures.cascade.tiny import some_cascade, some_outputs
from tests.fixtures.packing.generators import tiny_generator
from tests.fixtures.packing.in_process import generator
from tests.fixtures.packing.tiny import some_packing, some_predictor
from tests.fixtures.tokens.samples import tiny_backbone, tiny_profile, tiny_task

FILES = ("artifact.json", "tensors.safetensors", "digests.json")


@dataclass(frozen=True, slots=True)
class Part:
    weight: NDArray[Any]
    share: float


@dataclass(frozen=True, slots=True)
class Sample:
    KIND: ClassVar[str] = "sample"
    SCHEMA: ClassVar[int] = 3

    name: str
    parts: Mapping[int, Part]
    arrays: Mapping[str, NDArray[Any]]
    options: Mapping[str, int | float | str | bool]
    rows: tuple[tuple[float, ...], ...]
    note: str | None = None


finite = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.sampled_from([np.float32, np.float64, np.float16, np.int64, np.int8, np.uint8, np.bool_, np.dtype(">f4")])
arrays = numbers.flatmap(lambda dtype: nps.arrays(dtype, nps.array_shapes(min_dims=0, max_dims=3, min_side=0)))
keys = texts.filter(lambda key: key != "$tensor")
samples = st.builds(
    Sample,
    name=texts,
    parts=st.dictionaries(st.integers(-30, 30), st.builds(Part, arrays, finite), max_size=3),
    arrays=st.dictionaries(keys, arrays, max_size=3),
    options=st.dictionaries(keys, st.one_of(st.integers(), finite, texts, st.booleans()), max_size=3),
    rows=st.lists(st.lists(finite, max_size=3).map(tuple), max_size=3).map(tuple),
    note=st.none() | texts,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(samples)
def test_any_artifact_comes_back_as_it_was(tmp_path, sample):
    digest = codec.save(sample, tmp_path / "sample")
    np.testing.assert_equal(asdict(codec.load(Sample, tmp_path / "sample", digest)), asdict(sample))


def test_the_order_of_a_mapping_and_an_integer_for_a_float_do_not_change_the_digest(tmp_path):
    sample = Sample("s", {1: Part(np.ones(2), 1.0), 2: Part(np.ones(2), 2.0)}, {}, {"a": 1, "b": 2}, ((1.0,),))
    other = Sample("s", {2: Part(np.ones(2), 2), 1: Part(np.ones(2), 1)}, {}, {"b": 2, "a": 1}, ((1,),))
    assert (
        codec.save(sample, tmp_path / "one") == codec.save(other, tmp_path / "other") == codec.digest(tmp_path / "one")
    )


@pytest.mark.parametrize("file", FILES)
def test_an_altered_file_is_refused_with_its_name_and_both_digests(tmp_path, file):
    digest = codec.save(tiny_backbone(), tmp_path)
    content = bytearray((tmp_path / file).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / file).write_bytes(content)
    with pytest.raises(DigestError) as caught:
        codec.load(Backbone, tmp_path, digest)
    assert caught.value.file == str(tmp_path / file)
    assert len(caught.value.expected) == len(caught.value.actual) == 64
    assert caught.value.expected != caught.value.actual


def test_an_artifact_of_another_schema_is_refused(tmp_path):
    @dataclass(frozen=True, slots=True)
    class Newer(Sample):
        SCHEMA: ClassVar[int] = 4

    @dataclass(frozen=True, slots=True)
    class Older(Sample):
        SCHEMA: ClassVar[int] = 2

    codec.save(_sample(np.zeros(1)), tmp_path)
    with pytest.raises(FormerSchemaError, match=r"sample of schema 3, but sample of schema 4 .*run its flow again"):
        codec.load(Newer, tmp_path)
    with pytest.raises(SchemaError, match=r"sample of schema 3, but sample of schema 2 .*update this one") as caught:
        codec.load(Older, tmp_path)
    assert not isinstance(caught.value, FormerSchemaError)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"{", "is no JSON"),
        (b"\xff", "is no JSON"),
        (b"[]", "lacks kind, schema or values: it is no artifact of ours"),
        (b'{"schema": 3, "values": {}}', "no artifact of ours"),
        (b'{"kind": "x", "schema": 3, "values": 0}', "no artifact of ours"),
        (b'{"kind": "sample", "schema": 3, "values": {"name": "s"}}', "does not fit Sample: .*missing"),
        (b'{"kind": "sample", "schema": 3, "values": {"name": {"$tensor": "x"}}}', "names 'x'"),
    ],
)
def test_an_artifact_that_was_broken_before_it_was_signed_is_a_sentence(tmp_path, content, sentence):
    codec.save(_sample(np.zeros(1)), tmp_path)
    _sign(tmp_path, "artifact.json", content)
    with pytest.raises(ArtifactError, match=sentence):
        codec.load(Sample, tmp_path)


@pytest.mark.parametrize(
    ("artifact", "sentence"),
    [
        (
            replace(tiny_backbone(), weights={"w": np.zeros(1)}),
            r"it\.weights\['w'\]: an array of float64 where float32 is needed",
        ),
        (replace(tiny_backbone(), weights={"w": np.array([object()])}), "weights/w is an array of object"),
        (replace(tiny_backbone(), mean=(float("nan"), 0, 0)), "cannot be written as JSON"),
        (replace(tiny_backbone(), mean=(0.5, 0.5)), r"it\.mean"),
        (replace(tiny_backbone(), options={"deep": (1, 2)}), r"it\.options\['deep'\]: .*1, 2"),
        (replace(tiny_backbone(), image_size=object()), "image_size is a object"),
        (replace(tiny_backbone(), options={"$tensor": 1}), "keys of options"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(tmp_path, artifact, sentence):
    with pytest.raises(ArtifactError, match=sentence):
        codec.save(artifact, tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def _sample(array):
    return Sample("s", {}, {"array": array}, {}, ())


def _sign(folder, file, content):
    """Write a file and its digest, as a faulty writer would."""
    (folder / file).write_bytes(content)
    digests = json.loads((folder / "digests.json").read_text())
    (folder / "digests.json").write_text(json.dumps(digests | {file: sha256(content).hexdigest()}))


def test_an_artifact_is_written_as_every_version_wrote_it(tmp_path):
    """The digest is that of every byte of it."""
    rows = np.arange(3, dtype=np.int16)
    sample = Sample("grün", {2: Part(np.float64(0.5) * np.ones(1), 1), 10: Part(rows, 2.5)}, {"a/b": rows}, {}, ((1,),))
    digest = codec.save(sample, tmp_path)
    first, second = (
        {"weight": {"$tensor": f"parts/{key}/weight"}, "share": share} for key, share in ((2, 1.0), (10, 2.5))
    )
    arrays = {"a/b": {"$tensor": "arrays/a~1b"}}
    values = {"name": "grün", "parts": {"2": first, "10": second}, "arrays": arrays, "options": {}, "rows": [[1.0]]}
    document = {"kind": "sample", "schema": 3, "values": {**values, "note": None}}
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    assert (tmp_path / "artifact.json").read_text(encoding="utf-8") == text
    assert digest == codec.digest(tmp_path) == "e906874269057ca73e41db694e712b52549383c0066deb6a04cd95349a4442a4"
    assert codec.kind(tmp_path) == "sample"


@dataclass(frozen=True)
class Inner:
    name: str
    size: int | None = None


@dataclass(frozen=True)
class Outer:
    items: tuple[Inner, ...]
    weights: NDArray[np.float32]
    anything: NDArray[Any]
    value: int | float | str = 0


def values(**changes: Any) -> dict[str, Any]:
    arrays = {"weights": np.ones(2, np.float32), "anything": np.ones(2, np.int8)}
    return {"items": [{"name": "a"}, {"name": "b", "size": 3}], **arrays, **changes}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"items": [{"name": "a"}, {"size": 1}]}, r"it.items\[1\].name: 'name' is missing"),
        ({"items": [{"name": "a", "size": True}]}, r"it.items\[0\].size: True where"),
        ({"items": [{"name": "a", "size": 1.5}]}, r"it.items\[0\].size: 1.5 where"),
        ({"weights": [1.0, 2.0]}, r"it.weights: \[1.0, 2.0\] where an array is needed"),
        ({"weights": np.ones(2)}, "it.weights: an array of float64 where float32 is needed"),
        ({"value": None}, "it.value: None where"),
        ({"other": 1}, "other"),
    ],
)
def test_the_first_value_that_does_not_fit_is_named_with_its_place(changes, message):
    with pytest.raises(ArtifactError, match=f"file does not fit Outer: .*{message}"):
        structure(Outer, values(**changes), "file")


def _written(tmp_path, **arrays):
    path = tmp_path / "tensors.safetensors"
    path.write_bytes(codec.write_tensors(arrays))
    return path


@pytest.mark.parametrize("dtype", codec.TYPES.values(), ids=str)
def test_an_array_of_any_type_comes_back_as_it_was(tmp_path, dtype):
    array = np.arange(6, dtype=np.uint16).view(BFLOAT16) if dtype == BFLOAT16 else np.arange(6).astype(dtype)
    array = array.reshape(2, 3)
    content, _ = codec.read_tensors(_written(tmp_path, array=array, none=array[:0], one=array[:1, 1].reshape(())))
    back = codec.parse_tensors(content)
    assert back["array"].dtype == dtype and back["array"].tobytes() == array.tobytes()
    assert (back["array"].shape, back["none"].shape, back["one"].shape) == ((2, 3), (0, 3), ())


@pytest.mark.parametrize("mapped", [0, 1 << 20])
def test_the_arrays_of_a_file_are_views_of_what_was_digested(tmp_path, monkeypatch, mapped):
    monkeypatch.setattr(codec, "MAPPED", mapped)
    path = _written(tmp_path, x=np.arange(64, dtype=np.float32), y=np.ones((3, 5)))
    before = path.read_bytes()
    content, digest = codec.read_tensors(path)
    assert (bytes(content), digest) == (before, sha256(before).hexdigest())
    arrays = codec.parse_tensors(content)
    whole = np.frombuffer(content, np.uint8)
    assert all(np.shares_memory(array, whole) for array in arrays.values())
    arrays["x"][:] = 7
    assert path.read_bytes() == before, "what is written to an array is not written to the file"


@pytest.mark.parametrize("mapped", [0, 1 << 20])
def test_a_file_that_is_replaced_or_removed_keeps_its_arrays(tmp_path, monkeypatch, mapped):
    monkeypatch.setattr(codec, "MAPPED", mapped)
    path = _written(tmp_path, x=np.arange(5000.0))
    arrays = codec.parse_tensors(codec.read_tensors(path)[0])
    other = tmp_path / "other"
    other.write_bytes(b"other")
    other.replace(path)
    path.unlink()
    np.testing.assert_array_equal(arrays["x"], np.arange(5000.0))


def _file(**entry):
    header = json.dumps({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | entry}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(8)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"junk",
        b"\xff" * 40,
        (2).to_bytes(8, "little") + b"[]",
        (4).to_bytes(8, "little") + b'"xy"',
        (10**5).to_bytes(8, "little") + b"[" * 10**5,
        _file(dtype="F4"),
        _file(shape=[3]),
        _file(shape=[-2, -1]),
        _file(shape=["a"]),
        _file(shape=None),
        _file(data_offsets=[8, 16]),
        _file(data_offsets=[-8, 0]),
        _file(data_offsets=[0]),
        _file(data_offsets=[0, "8"]),
    ],
)
def test_what_is_no_file_of_arrays_is_a_value_error(content):
    with pytest.raises(ValueError):
        codec.parse_tensors(content)
    assert codec.parse_tensors(_file())["x"].tolist() == [0.0, 0.0]


def test_arrays_are_written_as_safetensors_itself_writes_them():
    """So the digests of what was stored before there was bfloat16 stay what they were."""
    types = [dtype for dtype in codec.TYPES.values() if dtype != BFLOAT16]
    arrays = {f"{dtype}/{shape}": np.ones(shape, dtype) for dtype in types for shape in ((), (0, 2), (3,), (2, 5))}
    assert codec.write_tensors(arrays) == safetensors.save(arrays)


STORED = {
    "tokens-backbone": tiny_backbone(),
    "tokens-task": tiny_task("t", "xyz", "d" * 64),
    "tokens-profile": tiny_profile("d" * 64, "cpu"),
    "bins-encoder": tiny_encoder(),
    "bins-plan": some_bins(),
    "cascade-classifier": tiny_classifier(),
    "cascade-bag": tiny_bag(tiny_classifier()),
    "cascade-exit": tiny_exit(),
    "cascade-outputs": some_outputs(),
    "cascade-task": some_cascade(some_outputs()),
    "packing-generator": tiny_generator(),
    "packing-predictor": some_predictor(),
    "packing-plan": some_packing(),
}


@pytest.mark.parametrize("kind", STORED)
def test_every_artifact_comes_back_as_it_was_and_is_of_the_kind_and_schema_that_were_released(kind, tmp_path):
    """A new schema comes with what reads the former one, or with a flow that takes its champion for none."""
    artifact = STORED[kind]
    assert (kind, 2 if kind == "cascade-task" else 1) == (artifact.KIND, artifact.SCHEMA)
    digest = codec.save(artifact, tmp_path / "a")
    np.testing.assert_equal(asdict(codec.load(type(artifact), tmp_path / "a", digest)), asdict(artifact))
    assert codec.save(artifact, tmp_path / "b") == digest


def test_artifacts_of_former_versions_are_read_without_what_they_did_not_have(tmp_path):
    lacking = {
        Encoder: ("prompts", tiny_encoder(prompts={"query": "q: "})),
        Bins: ("unpooled", some_bins(unpooled=True)),
        Generator: ("special_tokens", generator(special_tokens={"bos_token": "<s>"})),
    }
    for kind, (name, artifact) in lacking.items():
        files = codec.encode(artifact)
        document = json.loads(files[codec.VALUES])
        del document["values"][name]
        former = codec.decode(kind, {**files, codec.VALUES: json.dumps(document).encode()}, tmp_path)
        assert not getattr(former, name) and getattr(codec.decode(kind, files, tmp_path), name)


OLD, NEW = {"a": b"old", "b": b"old"}, {"a": b"new", "b": b"new"}


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_former_folder_comes_back_if_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    folder, rename = tmp_path / "kept", Path.rename
    replace_folder(folder, OLD)

    def refuse_the_new(path: Path, target: Path) -> Path:
        if target == folder and content(path) == NEW:
            raise OSError(28, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse_the_new)
    with pytest.raises(RegistryError, match="No space left on device"):
        replace_folder(folder, NEW)
    assert content(folder) == OLD
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_every_file_is_on_the_disk_before_the_folder_is_renamed_and_the_rename_after_it(tmp_path, monkeypatch):
    events, rename, fsync = [], Path.rename, os.fsync

    def note_sync(descriptor: int) -> None:
        events.append(Path(f"/proc/self/fd/{descriptor}").readlink().name.split("-")[0])
        fsync(descriptor)

    def note_rename(path: Path, target: Path) -> Path:
        events.append("rename")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "rename", note_rename)
    replace_folder(tmp_path / "kept", NEW)
    assert sorted(events[:3]) == [".kept", "a", "b"] and events[2] == ".kept"
    assert events[-1] == tmp_path.name and set(events[3:-1]) == {"rename"}


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), OSError("ill"), KeyboardInterrupt()])
def test_what_cannot_be_written_leaves_nothing_behind(tmp_path, monkeypatch, error):
    folder = tmp_path / "kept"
    replace_folder(folder, OLD)

    def fail(descriptor):
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else RegistryError) as caught:
        replace_folder(folder, NEW)
    if isinstance(error, OSError):
        assert str(caught.value) == f"{folder} cannot be written: {error.strerror or 'ill'}"
    assert content(folder) == OLD
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_file_that_is_no_artifacts_is_named_and_stays(tmp_path):
    for name in ("zebra", "apple", "a"):
        (tmp_path / name).write_text("mine")
    with pytest.raises(RegistryError) as caught:
        replace_folder(tmp_path, NEW)
    assert str(caught.value) == f"{tmp_path} holds apple, which is no artifact's: choose another folder"
    assert (tmp_path / "a").read_text() == "mine"


@pytest.mark.parametrize("key", ["", "/etc", "..", "a/../../b", "a//b", ".hidden", "a/.", "a\\b", "a\n", "a\0"])
def test_a_key_that_could_leave_the_root_is_refused(tmp_path, key):
    with pytest.raises(InputError, match="key is"):
        FolderStore(tmp_path).path(key)


def test_what_is_kept_under_a_key_is_never_replaced_and_its_notes_are_there_with_it(tmp_path):
    store = FolderStore(tmp_path)
    assert store.kept("tokens/backbone/a") is None
    store.keep("tokens/backbone/a", tiny_backbone(seed=0), {"seconds": 1.5})
    first = store.kept("tokens/backbone/a")
    store.keep("tokens/backbone/a", tiny_backbone(seed=1), {"seconds": 9.0})
    assert store.kept("tokens/backbone/a") == first == (codec.digest(store.path("tokens/backbone/a")), {"seconds": 1.5})
    assert store.load(Backbone, "tokens/backbone/a", first[0]).source == "random weights, seed 0"
    assert [path.name for path in store.path("tokens/backbone").iterdir()] == ["a"]


def test_notes_that_cannot_be_read_are_a_sentence_that_says_what_to_do(tmp_path):
    store = FolderStore(tmp_path)
    store.keep("tokens/backbone/a", tiny_backbone(), {})
    (store.path("tokens/backbone/a") / "notes.json").write_text("{")
    with pytest.raises(RegistryError, match="remove its folder"):
        store.kept("tokens/backbone/a")
