"""The installer says in one sentence why it cannot install, before it has changed anything, and how far it is."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

import install

Usage = namedtuple("Usage", "total used free")


@pytest.mark.parametrize("version", [(3, 8), (3, 10), (3, 15), (4, 0)])
def test_a_python_too_old_or_too_new_is_told_in_a_sentence(version):
    with pytest.raises(install.InstallError, match=r"Pliant needs Python 3\.11 to 3\.14 and this is"):
        install.check_python(version)


def test_the_range_of_pythons_is_the_one_of_the_package():
    text = (Path(install.HERE) / "pyproject.toml").read_text()
    assert f'requires-python = ">={install.OLDEST[0]}.{install.OLDEST[1]},<3.{install.TOO_NEW[1]}"' in text


def test_too_little_space_is_told_before_anything_is_downloaded(monkeypatch, capsys):
    monkeypatch.setattr(install.shutil, "disk_usage", lambda place: Usage(10e9, 9e9, 1e9))
    monkeypatch.setattr(install, "VENV", "/nowhere")
    monkeypatch.delenv("FORCE", raising=False)
    monkeypatch.setattr(install, "make_environment", lambda: pytest.fail("went on without space"))
    monkeypatch.setattr(install, "index_for_cpus", lambda: "")
    assert install.main(["demo"]) == 2
    assert "free disk space" in capsys.readouterr().err


def test_torchs_build_for_cpus_is_taken_where_there_is_no_card_and_its_index_answers(monkeypatch):
    monkeypatch.setattr(install.os.path, "exists", lambda path: False)
    monkeypatch.setattr(install.urllib.request, "urlopen", lambda *_, **__: io.BytesIO())
    monkeypatch.setattr(install.shutil, "which", lambda name: None)
    assert install.index_for_cpus() == install.FOR_CPUS
    monkeypatch.setattr(install.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert install.index_for_cpus() == ""
    monkeypatch.undo()
    monkeypatch.setattr(install, "FOR_CPUS", "http://127.0.0.1:9")  # nobody answers
    assert install.index_for_cpus() == ""


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_to_is_named(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(install.InstallError, match="may not be written"):
        install.check_folder(str(tmp_path))


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "the disk is full"),
        ("ERROR: Could not install: [Errno 13] Permission denied: '/x'", "may not be written by this user"),
        ("ERROR: No matching distribution found for torch==2.14.0", "is the package index reachable?"),
        ("Collecting torch\nERROR: something else", "pip could not install: something else"),
        ("", "pip could not install: no word from pip"),
    ],
)
def test_what_pip_says_becomes_one_sentence(log, said, tmp_path, monkeypatch):
    monkeypatch.setattr(install, "LOG", str(tmp_path / "log"))
    monkeypatch.setattr(install.shutil, "disk_usage", lambda place: Usage(90e9, 0, 90e9))
    Path(install.LOG).write_text(log)
    assert said in install.reason("demo")
    assert "\n" not in install.reason("demo")


def test_a_half_copied_package_is_forgotten_and_a_whole_one_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(install, "VENV", str(tmp_path))
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    for name, files in {"whole": ("METADATA", "RECORD"), "half": ("METADATA",)}.items():
        (packages / f"{name}-1.dist-info").mkdir(parents=True)
        for file in files:
            (packages / f"{name}-1.dist-info" / file).touch()
    install.forget_half_copied()
    assert [folder.name for folder in packages.iterdir()] == ["whole-1.dist-info"]


def test_a_second_install_in_the_same_folder_is_told_to_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(install, "VENV", str(tmp_path / ".venv"))
    with install.one_at_a_time(), pytest.raises(install.InstallError, match="at work"), install.one_at_a_time():
        pytest.fail("two installs at once")
    with install.one_at_a_time():
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("word", ["dem", "--help"])
def test_an_unknown_scope_is_an_error(word):
    run = subprocess.run([sys.executable, install.__file__, word], capture_output=True, text=True, timeout=60)
    assert run.returncode == 2
    assert run.stderr.count("\n") == 1
