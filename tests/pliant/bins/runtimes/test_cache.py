"""Compiled files are stored whole or not at all, under names made from their content, and verified before use."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from pliant.bins.runtimes.cache import PARTIAL, VERSIONS, cache_folder, check_versions, store, verify, versions
from pliant.errors import ArtifactError, DeviceError, DigestError


def write(content: str = "code"):
    return lambda target: (target / "model.bin").write_text(content)


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_folder_is_named_by_encoder_and_class_of_device():
    folder = cache_folder(Path("/home"), "0123456789abcdef0123", "NVIDIA GeForce RTX 3090")
    assert folder == Path("/home/compiled/0123456789abcdef/nvidia-geforce-rtx-3090")


def test_what_is_stored_verifies_and_the_same_again_is_kept_once(tmp_path):
    files = store(tmp_path, "onnx", write())
    verify(tmp_path, files)
    assert sorted(files) == files_in(tmp_path)
    assert store(tmp_path, "onnx", write()) == files
    assert len(list(tmp_path.iterdir())) == 1


def test_other_content_leaves_what_former_artifacts_vouch_for(tmp_path):
    former, later = store(tmp_path, "onnx", write("a")), store(tmp_path, "onnx", write("b"))
    assert not former.keys() & later.keys()
    verify(tmp_path, former)
    verify(tmp_path, later)


def test_damaged_files_are_replaced_by_the_same_ones(tmp_path):
    files = store(tmp_path, "onnx", write())
    name = next(name for name in files if name.endswith("model.bin"))
    (tmp_path / name).write_text("other")
    with pytest.raises(DigestError, match="was altered or truncated"):
        verify(tmp_path, files)
    assert store(tmp_path, "onnx", write()) == files
    verify(tmp_path, files)


def test_a_missing_file_is_told_with_the_command_that_makes_it(tmp_path):
    with pytest.raises(ArtifactError, match=r"x/y\.bin is missing in .*; `pliant profile bins` compiles again"):
        verify(tmp_path, {"x/y.bin": "0"})


def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path):
    outside = tmp_path / "outside.bin"
    outside.write_text("code")
    (tmp_path / "cache").mkdir()
    with pytest.raises(ArtifactError, match="is not a file of the cache folder"):
        verify(tmp_path / "cache", {"../outside.bin": "0"})


@pytest.mark.parametrize("raised", [ValueError, KeyboardInterrupt])
def test_an_interrupted_compile_leaves_nothing(tmp_path, raised):
    def interrupted(target: Path) -> None:
        (target / "half.bin").write_text("half")
        raise raised

    with pytest.raises(raised):
        store(tmp_path, "onnx", interrupted)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_sentence(tmp_path):
    def full(target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(
        ArtifactError, match=r"^the compiled files could not be written to .*: No space left on device$"
    ):
        store(tmp_path, "onnx", full)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_swept_after_a_day(tmp_path):
    old, fresh = tmp_path / f"{PARTIAL}old", tmp_path / f"{PARTIAL}fresh"
    for folder in (old, fresh):
        folder.mkdir()
    os.utime(old, (time.time() - 90_000,) * 2)
    store(tmp_path, "onnx", write())
    assert (old.exists(), fresh.exists()) == (False, True)


def test_files_tell_their_versions_and_processor(tmp_path, monkeypatch):
    files = store(tmp_path, "onnx", write())
    assert (check_versions(tmp_path, files, "onnx") / VERSIONS).is_file()
    assert set(versions("onnx")) == {"onnxruntime", "torch", "transformers", "processor"}
    monkeypatch.setattr("pliant.bins.runtimes.cache._version", lambda package: "0.1")
    with pytest.raises(DeviceError, match=r"compiled with onnxruntime .*, but here is 0\.1; `pliant profile bins`"):
        check_versions(tmp_path, files, "onnx")
