"""What the processes of a service under measurement use."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from pliant.benchmarks.endpoint import processes, processor_seconds


def test_the_processors_time_of_a_service_is_that_of_all_its_processes():
    work = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass', sys.argv[1]])"
    with subprocess.Popen([sys.executable, "-c", work, "49151"], start_new_session=True) as service:
        try:
            until = time.monotonic() + 60
            while len(family := processes("http://127.0.0.1:49151")) < 2 or processor_seconds(family) < 0.1:
                assert time.monotonic() < until
                time.sleep(0.02)
            assert processes("http://127.0.0.1:49150") == []
        finally:
            os.killpg(service.pid, signal.SIGKILL)
