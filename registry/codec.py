"""Writes frozen artifact dataclasses to a folder and reads them back, never as a pickle.

    artifact.json         {"kind", "schema", "values"}; an array leaf is {"$tensor": its name}
    tensors.safetensors   the arrays, each named by its path in the values (a JSON pointer, RFC 6901, without the first /)
                          and in its own type; bfloat16: pliant/bfloat16.py
    digests.json          sha256 of the two files above; the artifact's own digest is the sha256 of this file

Equal artifacts give equal bytes, hence equal digests, whatever the order of their mappings' keys. What is read is verified
before it is parsed. Knows any dataclass with `KIND` and `SCHEMA`, and none by name. cattrs makes values of JSON; this file
says what it accepts as an array and as a union of plain types, and makes one sentence of its groups of exceptions.

Arrays are read as views of the file's content, so that loading takes little longer than its digest, and none is there twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from hashlib import sha256
from math import prod
from mmap import ACCESS_COPY, MADV_WILLNEED, mmap
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Protocol, TypeVar, Union, get_args, get_origin

import numpy as np
from cattrs import Converter
from cattrs.errors import (
    AttributeValidationNote,
    BaseValidationError,
    ClassValidationError,
    ForbiddenExtraKeysError,
    IterableValidationError,
)
from numpy.typing import NDArray
from safetensors import TensorSpec, serialize

from pliant.bfloat16 import BFLOAT16
from pliant.errors import ArtifactError, DigestError, FormerSchemaError, RegistryError, SchemaError
from pliant.registry.folder import replace_folder

NEWER = ": a newer version of Pliant wrote it; update this one, or release again with a version as old as this"
OLDER = ": an older version of Pliant wrote it; run its flow again with this version, or serve it with that one"
VALUES, TENSORS, DIGESTS = "artifact.json", "tensors.safetensors", "digests.json"
REFERENCE = "$tensor"

Array = NDArray[Any]
Content = bytes | memoryview

TYPES = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "U16": np.dtype(np.uint16),
    "I16": np.dtype(np.int16),
    "U32": np.dtype(np.uint32),
    "I32": np.dtype(np.int32),
    "U64": np.dtype(np.uint64),
    "I64": np.dtype(np.int64),
    "F16": np.dtype(np.float16),
    "BF16": BFLOAT16,
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
}
"""The types of safetensors that an artifact can hold."""

LENGTH = 8  # bytes in front, which say how many the header has
LINE = 64  # bytes of a line of a processor's cache
MAPPED = 1 << 26  # bytes from which a file is mapped; copying 2 GB costs a core as long as digesting it

PLAIN = (bool, int, float, str, type(None))


class Artifact(Protocol):
    """Any frozen dataclass that names its kind and the version of its layout."""

    KIND: ClassVar[str]
    SCHEMA: ClassVar[int]


T = TypeVar("T", bound=Artifact)


def save(artifact: Artifact, folder: Path) -> str:
    """Write `artifact` to `folder` in one step and return its digest.

    A folder that holds the same artifact intact is left alone, any other content is replaced. Raises `RegistryError`
    where the disk refuses (nothing half-written stays behind), `ArtifactError` for values that could not be read again.
    """
    files = encode(artifact)
    expected = digest_of(files)
    try:
        _verified(folder, expected)
    except (ArtifactError, RegistryError):
        replace_folder(folder, files)
    return expected


def load(cls: type[T], folder: Path, digest: str | None = None) -> T:
    """Return the artifact in `folder`, which must have `digest` if one is given.

    Raises `DigestError` for a file that is not what was saved, `SchemaError` for another kind or schema, `ArtifactError`
    for what cannot be parsed and `RegistryError` where there is nothing to read.
    """
    files = _verified(folder, digest)
    return decode(cls, files, folder)


def digest(folder: Path) -> str:
    """Return the digest of the artifact in `folder`, which identifies it everywhere. Does not verify the files."""
    return _digested(folder, DIGESTS, "a list of digests")[1]


def digest_of(files: Mapping[str, bytes]) -> str:
    """Return the digest of what `encode` has given."""
    return _hash(files[DIGESTS])


def kind(folder: Path) -> str:
    """Return the kind of the artifact in `folder`, verified."""
    return str(_header(_verified(folder, None), folder)["kind"])


def encode(artifact: Artifact) -> dict[str, bytes]:
    """Return file name -> content. Raises `ArtifactError` for values that could not be read again."""
    values, arrays = _flatten(artifact)
    # Encoded and decoded once: that fails now rather than at load, and makes an integer given for a float a float.
    values, arrays = _flatten(structure(type(artifact), _place(values, arrays), artifact.KIND))
    document = {"kind": artifact.KIND, "schema": artifact.SCHEMA, "values": values}
    files = {VALUES: _json(document), TENSORS: write_tensors(arrays)}
    return files | {DIGESTS: _json({name: _hash(content) for name, content in files.items()})}


def decode(cls: type[T], files: Mapping[str, Content], folder: Path) -> T:
    """Return the artifact that verified files hold; its arrays are views of them. `folder` is for messages only."""
    document = _header(files, folder)
    if (document["kind"], document["schema"]) != (cls.KIND, cls.SCHEMA):
        failure, advice = SchemaError, ""
        if document["kind"] == cls.KIND:
            failure, advice = (SchemaError, NEWER) if document["schema"] > cls.SCHEMA else (FormerSchemaError, OLDER)
        actual = f"{document['kind']} of schema {document['schema']}"
        raise failure(f"{folder} holds {actual}, but {cls.KIND} of schema {cls.SCHEMA} is needed{advice}")
    try:
        arrays = parse_tensors(files[TENSORS])
    except ValueError as error:
        raise ArtifactError(f"{folder / TENSORS} is no safetensors file that this version reads: {error}") from error
    where = str(folder / VALUES)
    try:
        values = _place(document["values"], arrays)
    except KeyError as error:
        raise ArtifactError(f"{where} names {error}, which neither it nor {TENSORS} holds") from error
    return structure(cls, values, where)


def _flatten(artifact: Artifact) -> tuple[Any, dict[str, Array]]:
    """Return JSON values, and the arrays that they name."""
    arrays: dict[str, Array] = {}
    return _plain(artifact, "", arrays), arrays


def _plain(value: Any, path: str, arrays: dict[str, Array]) -> Any:
    """Return JSON values, mappings in their keys' order, and move every array to `arrays`."""
    match value:
        case np.ndarray():
            if value.dtype.newbyteorder("=") not in TYPES.values():
                raise ArtifactError(f"{path} is an array of {value.dtype}, which an artifact cannot hold")
            arrays[path] = np.asarray(value, dtype=value.dtype.newbyteorder("="), order="C")
            return {REFERENCE: path}
        case np.generic():
            return value.item()
        case Mapping():
            kinds = {type(key) for key in value}
            if len(kinds) > 1 or not kinds <= {int, str} or REFERENCE in value:
                raise ArtifactError(f"the keys of {path} must all be integers or all strings, and none {REFERENCE}")
            return {str(key): _plain(value[key], _join(path, key), arrays) for key in sorted(value)}
        case list() | tuple():
            return [_plain(item, _join(path, index), arrays) for index, item in enumerate(value)]
        case _ if is_dataclass(value):
            named = {field.name: getattr(value, field.name) for field in fields(value)}
            return {name: _plain(item, _join(path, name), arrays) for name, item in named.items()}
        case None | bool() | int() | float() | str():
            return value
    raise ArtifactError(f"{path} is a {type(value).__name__}, which an artifact cannot hold")


def _join(path: str, key: object) -> str:
    step = str(key).replace("~", "~0").replace("/", "~1")
    return f"{path}/{step}" if path else step


def _place(value: Any, arrays: Mapping[str, Array]) -> Any:
    """Reverse `_plain`, but for classes and key types, which `structure` restores."""
    match value:
        case {"$tensor": str(name)}:
            return arrays[name]
        case dict():
            return {key: _place(item, arrays) for key, item in value.items()}
        case list():
            return [_place(item, arrays) for item in value]
    return value


def _header(files: Mapping[str, Content], folder: Path) -> dict[str, Any]:
    match document := _parse(bytes(files[VALUES]), folder / VALUES):
        case {"kind": str(), "schema": int(), "values": dict()}:
            return dict(document)
    raise ArtifactError(f"{folder / VALUES} lacks kind, schema or values: it is no artifact of ours")


def _verified(folder: Path, digest: str | None) -> dict[str, Content]:
    """Return every file's content, read once and verified to be what was saved."""
    listed, actual = _digested(folder, DIGESTS, digest or "a list of digests")
    if digest is not None:
        _compare(folder / DIGESTS, digest, actual)
    digests = _parse(bytes(listed), folder / DIGESTS)
    if not isinstance(digests, dict) or not {VALUES, TENSORS} == set(digests):
        raise ArtifactError(f"{folder / DIGESTS} must name {VALUES} and {TENSORS}, and nothing else")
    read = {name: _digested(folder, name, expected) for name, expected in digests.items()}
    for name, expected in digests.items():
        _compare(folder / name, expected, read[name][1])
    return {name: content for name, (content, _) in read.items()}


def _compare(file: Path, expected: str, actual: str) -> None:
    if actual != expected:
        raise DigestError(str(file), expected, actual)


def _digested(folder: Path, name: str, expected: str) -> tuple[memoryview, str]:
    """Return a file's content and its sha256."""
    if not folder.is_dir():
        raise RegistryError(f"there is no artifact at {folder}")
    try:
        return read_tensors(folder / name)
    except FileNotFoundError as error:
        raise DigestError(str(folder / name), expected, "no such file") from error
    except OSError as error:
        raise RegistryError(f"{folder / name} cannot be read: {error.strerror}") from error


def _json(value: Any) -> bytes:
    try:
        return json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False).encode() + b"\n"
    except ValueError as error:  # NaN or an infinity outside an array; text that is no Unicode
        raise ArtifactError(f"the artifact's values cannot be written as JSON: {error}") from error


def _parse(content: bytes, file: Path) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{file} is no JSON: {error}") from error


def _hash(content: bytes) -> str:
    return sha256(content).hexdigest()


def structure(cls: type[T], values: Any, where: str) -> T:
    """Return an instance of `cls`. Raises `ArtifactError` that names `where` and the first value that does not fit."""
    converter = Converter(forbid_extra_keys=True)
    converter.register_structure_hook_func(lambda kind: get_origin(kind) is np.ndarray, _fitting_array)
    converter.register_structure_hook_func(_is_plain_union, _fitting_plain)
    try:
        return converter.structure(values, cls)
    except BaseValidationError as error:
        raise ArtifactError(f"{where} does not fit {cls.__name__}: {_first(error, 'it')}") from error


def _first(error: BaseException, path: str) -> str:
    """Return the first fault and its place. (cattrs' own `transform_error` forgets its formatter below the first level.)"""
    if isinstance(error, ForbiddenExtraKeysError):
        fields = ", ".join(sorted(error.extra_fields))
        return f"{path}: this version of Pliant does not know its {fields}: a newer one wrote it; update this one"
    if not isinstance(error, ClassValidationError | IterableValidationError):
        return f"{path}: {error} is missing" if isinstance(error, KeyError) else f"{path}: {error}"
    noted, bare = error.group_exceptions()
    if not noted:
        return _first(bare[0], path)
    inner, note = noted[0]
    step = f".{note.name}" if isinstance(note, AttributeValidationNote) else f"[{note.index!r}]"
    return _first(inner, path + step)


def _fitting_array(value: Any, kind: Any) -> Any:
    (wanted,) = get_args(get_args(kind)[1])
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{value!r} where an array is needed")
    if wanted is not Any and value.dtype != np.dtype(wanted):
        raise TypeError(f"an array of {value.dtype} where {np.dtype(wanted)} is needed")
    return value


def _is_plain_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, UnionType) and set(get_args(kind)) <= set(PLAIN)


def _fitting_plain(value: Any, kind: Any) -> Any:
    if type(value) not in get_args(kind):
        raise TypeError(f"{value!r} where {kind} is needed")
    return value


def write_tensors(arrays: dict[str, Array]) -> bytes:
    """Return the content of a file with these arrays, each in C order and of the machine's byte order."""
    specs = {}
    for name, array in arrays.items():
        dtype = "bfloat16" if array.dtype == BFLOAT16 else array.dtype.name
        specs[name] = TensorSpec(dtype=dtype, shape=array.shape, data_ptr=array.ctypes.data, data_len=array.nbytes)
    return bytes(serialize(specs))


def read_tensors(path: Path) -> tuple[memoryview, str]:
    """Return a file's content and the sha256 of just that. Raises `OSError`.

    A large file is mapped: its pages are the system's own copy, which other processes share. It may therefore be
    replaced or removed, but not be overwritten while it is used.
    """
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size < MAPPED:
            content = _copied(file.readall())
        else:
            mapping = mmap(file.fileno(), 0, access=ACCESS_COPY)  # what is written to its pages stays in this process
            mapping.madvise(MADV_WILLNEED)  # the disk reads ahead of the digest
            content = memoryview(mapping)
    return content, sha256(content).hexdigest()


def _copied(content: bytes) -> memoryview:
    """Return a copy that may be written to, in which the arrays begin with a line of the processor's cache."""
    whole = np.empty(len(content) + LINE, np.uint8)
    start = LENGTH + int.from_bytes(content[:LENGTH], "little")
    skip = -(whole.ctypes.data + start) % LINE
    copy = whole.data[skip : skip + len(content)]
    copy[:] = content
    return copy


def parse_tensors(content: bytes | memoryview) -> dict[str, Array]:
    """Return the arrays of a file as views of its content. Raises `ValueError` for what is no such file."""
    size = int.from_bytes(content[:LENGTH], "little")
    try:
        header = json.loads(bytes(content[LENGTH : LENGTH + size]))
        named = {name: entry for name, entry in header.items() if name != "__metadata__"}
        return {name: _array(entry, content, LENGTH + size) for name, entry in named.items()}
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"its header is broken ({type(error).__name__}: {error})") from error


def _array(entry: Any, content: bytes | memoryview, start: int) -> Array:
    """Return the array of an entry of the header. `start`: the first byte after the header."""
    dtype, shape, (begin, end) = TYPES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
    if not 0 <= begin <= end <= len(content) - start or end - begin != prod(shape) * dtype.itemsize:
        raise ValueError(f"an array of {dtype} and shape {list(shape)} lies at bytes {begin} to {end}")
    return np.ndarray(shape, dtype, content, start + begin)
