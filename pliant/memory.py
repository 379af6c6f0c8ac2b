"""How much memory of the machine a process may still take: what the system has available, within its container's limit.

Sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

GIB = float(1 << 30)
_CGROUPS = Path("sys/fs/cgroup")


def free_memory(root: Path = Path("/")) -> int:
    """Return the bytes that this process may take before the system or its container (cgroup) has none left."""
    meminfo = (root / "proc/meminfo").read_text()
    available = next(int(line.split()[1]) for line in meminfo.splitlines() if line.startswith("MemAvailable:"))
    rooms = [1024 * available]
    for folder in _folders(root):
        for limit, used, cache in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            text = _read(folder / limit)
            if text.isdecimal():  # "max" where there is no limit
                rows = (line.split() for line in _read(folder / "memory.stat").splitlines())
                given_up = next((int(row[1]) for row in rows if row[0] == cache), 0)  # when memory is short
                rooms.append(max(int(text) - int(_read(folder / used) or 0) + given_up, 0))
    return min(rooms)


def gib(size: float) -> str:
    """Return a size for people, such as 1.25 GiB."""
    return f"{size / GIB:.3g} GiB"


def _folders(root: Path) -> Iterator[Path]:
    """Yield the folders of the process's cgroups, from its own up to the root, in both versions of them."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top = root / _CGROUPS / ("memory" if controllers else "")
        own = PurePosixPath(path.lstrip("/"))
        for part in (own, *own.parents):
            yield top / part


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
