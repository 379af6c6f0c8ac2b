"""What a result depends on besides code, settings and data, and what was used up to make it. Knows no system."""

from __future__ import annotations

import os
import platform
import threading
import time
from functools import cache
from pathlib import Path

import torch

POWERCAP = Path("/sys/class/powercap")
EVERY = 60.0  # seconds between two readings of energy, whose counter may begin anew after some ten minutes


def arithmetic() -> dict[str, str | int]:
    """Return what may change the last digits of a result here: Python, processor, GPU and torch's threads."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": f"{next(named, platform.processor())} ({torch.backends.cpu.get_cpu_capability()})",
        "cores": os.cpu_count() or 0,
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "",
    }


def used() -> dict[str, float]:
    """Return seconds since some moment, the processors' seconds of this process and of its children that have ended, and the
    joules of this machine's processors since the first call, where it lets them be read.
    """
    energy = _energy().read()
    seconds = {"seconds": time.monotonic(), "cpu_seconds": sum(os.times()[:4])}
    return seconds | ({} if energy is None else {"cpu_joules": energy})


class Energy:
    """Intel's counters of energy (RAPL), as Linux shows them. Where there are any, a thread keeps up with them."""

    def __init__(self, root: Path = POWERCAP) -> None:
        self._root, self._counts, self._joules, self._lock = root, dict[str, int](), 0.0, threading.Lock()
        if self.read() is not None:
            threading.Thread(target=self._watch, name="energy", daemon=True).start()

    def read(self) -> float | None:
        """Return joules; None without a counter that may be read."""
        with self._lock:
            for zone in self._root.glob("intel-rapl:[0-9]"):  # a whole processor; its parts have another colon
                try:
                    count, most = (int((zone / name).read_text()) for name in ("energy_uj", "max_energy_range_uj"))
                except (OSError, ValueError):
                    continue
                self._joules += (count - self._counts.get(zone.name, count)) % (most + 1) / 1e6
                self._counts[zone.name] = count
        return self._joules if self._counts else None

    def _watch(self) -> None:
        while True:
            time.sleep(EVERY)
            self.read()


_energy = cache(Energy)
