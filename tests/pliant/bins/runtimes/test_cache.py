"""Compiled files are stored whole or not at all, under names made from their content, and verified before use."""

from __future__ import annotations

import json
import os
import platform
import re
import time
from pathlib import Path

import pytest

from pliant.bins.runtimes import cache
from pliant.bins.runtimes.cache import PARTIAL, VERSIONS, check_versions, store, verify, versions
from pliant.errors import ArtifactError, DeviceError


def write(content: str = "code"):
    return lambda target: (target / "model.bin").write_text(content)


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_what_is_stored_verifies_and_the_same_again_is_kept_once(tmp_path):
    files = store(tmp_path, "onnx", write())
    verify(tmp_path, files)
    assert sorted(files) == files_in(tmp_path)
    assert store(tmp_path, "onnx", write()) == files
    assert len(list(tmp_path.iterdir())) == 1


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


def test_each_version_and_the_processor_must_be_those_of_then(tmp_path):
    files = store(tmp_path, "eager", write())
    record = next(tmp_path.glob(f"*/{VERSIONS}"))
    assert check_versions(tmp_path, files, "eager") == record.parent
    for name, present in versions("eager").items():
        record.write_text(json.dumps({**versions("eager"), name: "0.0"}))
        words = f"compiled with {name} 0.0, but here is {present}; `pliant profile bins` compiles again"
        with pytest.raises(DeviceError) as caught:
            check_versions(tmp_path, files, "eager")
        assert str(caught.value) == words
    record.write_text(json.dumps({**versions("eager"), "more": "1"}))
    assert check_versions(tmp_path, files, "eager") == record.parent


def test_files_without_a_record_of_their_versions_are_refused(tmp_path):
    with pytest.raises(
        ArtifactError, match=rf"^{VERSIONS} is not among the compiled files; `pliant profile bins` comp"
    ):
        check_versions(tmp_path, {"x/model.bin": "0"}, "onnx")


def test_a_processor_is_known_by_its_instructions_in_any_order(tmp_path, monkeypatch):
    listing = tmp_path / "cpuinfo"
    monkeypatch.setattr(cache, "Path", lambda _: listing)
    monkeypatch.setattr(platform, "processor", lambda: "some chip")
    seen = {}
    for name, text in {
        "x86": "processor : 0\nflags : sse avx\nprocessor : 1\nflags : other",
        "x86 again": "model : b\nflags : avx sse",
        "x86 more": "flags : sse avx avx2",
        "arm": "processor : 0\nFeatures : sse avx",
        "none": "processor : 0\nmodel : b",
        "none again": "processor : 0\nmodel : c",
        "empty": "",
    }.items():
        listing.write_text(text)
        seen[name] = versions("eager")["processor"]
    listing.unlink()
    seen["by name"] = versions("eager")["processor"]
    assert seen["x86"] == seen["x86 again"] and seen["none"] == seen["none again"]
    assert len(set(seen.values())) == 6
    assert all(re.fullmatch(rf"{platform.machine()}-[0-9a-f]{{12}}", digest) for digest in seen.values())


def test_a_day_is_86400_seconds_for_what_a_killed_process_left(tmp_path):
    old = tmp_path / f"{PARTIAL}old"
    old.mkdir()
    for seconds, left in ((86_000, True), (86_800, False)):
        os.utime(old, (time.time() - seconds,) * 2)
        store(tmp_path, "onnx", write(str(seconds)))
        assert old.exists() == left
