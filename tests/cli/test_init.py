"""`pliant init`: what it writes the flows read, nothing is overwritten, and what is missing is told in a sentence."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from PIL import Image

from pliant import systems
from pliant.cli.main import main
from tests.fixtures.cascade.tiny import write_texts


@pytest.fixture
def data(here) -> dict[str, str]:
    """Data of one's own for each system, named by paths alone."""
    write_texts(here)
    (here / "asks.jsonl").write_text("".join(json.dumps({"prompt": f"Say {n}"}) + "\n" for n in range(30)))
    for number in range(30):
        folder = here / "pictures" / ("dark" if number % 2 else "light")
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (number, 0, 0)).save(folder / f"{number}.png")
    return {"tokens": "pictures", "bins": "things.jsonl", "cascade": "things.jsonl", "packing": "asks.jsonl"}


@pytest.mark.parametrize("name", systems.names())
def test_what_it_writes_is_read_by_the_flow_and_never_overwritten_unasked(name, data, capsys):
    order = ["init", name, "--model", "auto", "--data", data[name]]
    assert main(order) == 0
    file = Path(f"{name}.toml")
    config = systems.system(name).part("flows", "config").read(file)
    assert data[name] in str(config)
    assert f"pliant train {name} --config {file}" in capsys.readouterr().out
    file.write_text("mine")
    assert main(order) == 2 and file.read_text() == "mine"
    assert "--force" in capsys.readouterr().err
    assert main([*order, "--force"]) == 0 and file.read_text() != "mine"


def test_a_folder_is_a_model_to_start_from_and_a_spoilt_one_is_refused_before_anything_is_written(data, here, capsys):
    (here / "model").mkdir()
    assert main(["init", "cascade", "--model", "model", "--data", "things.jsonl", "--out", "mine.toml"]) == 2
    assert "model" in capsys.readouterr().err and not Path("mine.toml").exists()


def test_without_a_terminal_what_is_missing_is_told_and_on_one_it_is_asked(data, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main(["init", "packing", "--data", "asks.jsonl"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    answers = iter(["", "asks.jsonl"])
    monkeypatch.setattr("builtins.input", lambda _question: next(answers))
    assert main(["init", "packing"]) == 0
    assert 'generator = "embedded"' in Path("packing.toml").read_text()
