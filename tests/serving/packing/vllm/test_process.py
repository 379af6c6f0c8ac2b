"""A command that is run leaves nothing behind: no child, no output."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from serving.packing.vllm import process

CHILD = "import subprocess, sys, time; print(subprocess.Popen(['sleep', '600']).pid, flush=True); "


def gone(pid):
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_both_streams_and_the_status_are_returned(tmp_path):
    code = "import os, sys; print(os.environ['WORD'], os.getcwd()); sys.stderr.write('  two\\n\\n'); sys.exit(7)"
    output = process.run([sys.executable, "-c", code], {"WORD": "one"}, 60, folder=tmp_path)
    assert (output.status, output.hung) == (7, False)
    assert sorted(output.lines) == sorted([f"one {tmp_path}", "two"])


def test_it_ticks_while_the_command_runs():
    ticks = []
    process.run([sys.executable, "-c", "import time; time.sleep(0.3)"], os.environ, 60, lambda: ticks.append(1), 0.01)
    assert len(ticks) > 1


def test_a_command_that_hangs_is_ended_with_its_children():
    output = process.run([sys.executable, "-c", f"{CHILD} time.sleep(600)"], os.environ, 1.0, tick_s=0.05)
    assert output.hung
    assert gone(int(output.text))


def test_children_that_a_command_leaves_end_with_it():
    output = process.run([sys.executable, "-c", CHILD], os.environ, 60, tick_s=0.05)
    assert (output.status, output.hung) == (0, False)
    assert gone(int(output.text))


def test_an_interruption_ends_it(tmp_path):
    file = tmp_path / "pid"
    code = f"import os, time; open({str(file)!r}, 'w').write(str(os.getpid())); time.sleep(600)"

    def interrupt():
        if file.exists() and file.read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        process.run([sys.executable, "-c", code], os.environ, 60, interrupt, 0.02)
    assert gone(int(file.read_text()))
