"""What a service keeps for its next start is whole or not there, and trouble with the disk is said once."""

from __future__ import annotations

import pytest

from pliant.serving.state_file import StateFile


def test_what_was_written_is_read_again_and_nothing_else_is_left(tmp_path):
    file = StateFile(tmp_path / "new" / "state.json")
    assert file.read() is None
    assert file.write({"a": [1, 2.5, None]}) and file.read() == {"a": [1, 2.5, None]}
    assert [path.name for path in file.path.parent.iterdir()] == ["state.json"]
    file.remove()
    file.remove()
    assert file.read() is None


@pytest.mark.parametrize("content", ["{", "[1]", "", "\x00"])
def test_a_file_that_cannot_be_read_counts_as_none_and_the_log_says_so(content, tmp_path, caplog):
    (tmp_path / "state.json").write_text(content)
    assert StateFile(tmp_path / "state.json").read() is None
    assert "begun anew" in caplog.text


def test_a_place_that_cannot_be_a_folder_is_said_once_and_raises_nothing(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    file = StateFile(tmp_path / "file" / "state.json")
    assert not file.write({}) and not file.write({})
    assert caplog.text.count("cannot be written") == 1
