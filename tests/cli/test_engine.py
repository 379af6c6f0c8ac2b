"""`pliant engine` installs, lists and removes, and says in one sentence what is wrong."""

from __future__ import annotations

import pytest

from cli.main import main
from serving.packing.vllm import engine, index, packages
from tests.fixtures.commands import refused, shown
from tests.fixtures.packing import fake_uv


@pytest.fixture
def home(here, tmp_path, monkeypatch):
    """The home of commands whose installer needs no network."""
    tool = fake_uv.write(tmp_path)
    monkeypatch.setattr(packages, "uv", lambda: tool)
    monkeypatch.setattr(index, "pip_settings", dict)
    return here / ".pliant"


def test_it_installs_lists_and_removes(home, capsys):
    sentence = f"vLLM is not installed in {engine.folder(home)}; install it with: pliant engine install vllm\n"
    assert shown(["engine", "list"], capsys) == sentence
    assert main(["engine", "install", "vllm", "--device", "cpu"]) == 0
    output = capsys.readouterr()
    assert output.out.startswith(f"vllm for cpu in {engine.folder(home)}: vllm 0.32.0+cpu, Python 3")
    assert "\nengine: installing vLLM for cpu into " in output.err
    assert "downloading vLLM: done" in output.err and "generating a text: done" in output.err
    assert shown(["engine", "list"], capsys).startswith(
        f"vllm for cpu in {engine.folder(home)}: vllm 0.32.0+cpu, Python 3"
    )
    assert shown(["engine", "remove", "vllm"], capsys) == f"Removed {engine.folder(home)}.\n"
    assert shown(["engine", "remove", "vllm"], capsys) == f"There is nothing to remove in {engine.folder(home)}.\n"


def test_the_list_says_what_is_wrong_with_an_engine(home, capsys):
    assert main(["engine", "install", "vllm", "--device", "cpu"]) == 0
    capsys.readouterr()
    (engine.folder(home) / "bin" / "python").unlink()
    assert shown(["engine", "list"], capsys).splitlines()[1].startswith("vLLM in ")


def test_without_a_device_it_is_that_of_the_driver(home, capsys, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["engine", "install", "vllm"]) == 0
    assert capsys.readouterr().out.startswith("vllm for cpu in ")


def test_what_hinders_it_is_one_sentence(home, tmp_path, capsys):
    fake_uv.write(tmp_path, fake_uv.fails("error: Failed to fetch: `https://u:pw@h/`\n  cause: dns error"))
    assert main(["engine", "install", "vllm", "--device", "cpu"]) == 2
    error = capsys.readouterr().err
    assert error.splitlines()[-1].startswith("pliant: the package index could not be read (dns error); ")
    assert "Traceback" not in error and "pw" not in error
    assert "there is no such command" in refused(["engine", "install", "vllm", "--python", "no-such-python"], capsys)


def test_a_home_that_cannot_be_is_one_sentence(home, capsys, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PLIANT_HOME", str(tmp_path / "file"))
    assert "PLIANT_HOME is " in refused(["engine", "install", "vllm", "--device", "cpu"], capsys)


@pytest.mark.parametrize("words", [["install", "other"], ["install", "vllm", "--device", "tpu"], ["install"], []])
def test_other_words_are_refused(words, capsys):
    with pytest.raises(SystemExit) as end:
        main(["engine", *words])
    assert end.value.code == 2


def test_help_says_what_it_takes_and_where_it_lies(capsys):
    with pytest.raises(SystemExit):
        main(["engine", "install", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for device in engine.DEVICES:
        for size in (packages.DOWNLOADED[device], packages.INSTALLED[device]):
            assert f"{size / 1e9:.1f}" in text
    assert "PLIANT_HOME/engines/vllm" in text and "find-links" in text
