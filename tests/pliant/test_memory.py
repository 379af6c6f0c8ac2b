"""Free memory is what the system has available, within the limits of every container around the process."""

from __future__ import annotations

import pytest

from pliant.memory import free_memory, gib

MEMINFO = "MemTotal:       4000 kB\nMemFree:         100 kB\nMemAvailable:   2000 kB\n"


def machine(root, cgroup: str, files: dict[str, str]):
    contents = {"proc/meminfo": MEMINFO, "proc/self/cgroup": cgroup, **files}
    for name, content in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


TOP = "sys/fs/cgroup"


@pytest.mark.parametrize(
    ("cgroup", "files", "free"),
    [
        ("", {}, 2_048_000),
        ("0::/\n", {f"{TOP}/memory.max": "max\n"}, 2_048_000),
        ("0::/\n", {f"{TOP}/memory.max": "1000000\n", f"{TOP}/memory.current": "600000\n"}, 400_000),
        ("0::/\n", {f"{TOP}/memory.max": "1000000\n", f"{TOP}/memory.current": "1200000\n"}, 0),
        ("0::/a/b\n", {f"{TOP}/a/memory.max": "900000", f"{TOP}/a/memory.current": "1"}, 899_999),
        ("0::/a/b\n", {f"{TOP}/a/b/memory.max": "9000000", f"{TOP}/a/memory.max": "500000"}, 500_000),
        (
            "4:memory:/a\n3:cpu:/b\n",
            {
                f"{TOP}/memory/a/memory.limit_in_bytes": "1000000",
                f"{TOP}/memory/a/memory.usage_in_bytes": "600000",
                f"{TOP}/memory/a/memory.stat": "cache 1\ntotal_inactive_file 50000\n",
                f"{TOP}/b/memory.max": "5",
            },
            450_000,
        ),
        (
            "0::/\n",
            {
                f"{TOP}/memory.max": "1000000",
                f"{TOP}/memory.current": "600000",
                f"{TOP}/memory.stat": "inactive_file 7",
            },
            400_007,
        ),
    ],
    ids=["no cgroups", "no limit", "a limit", "beyond it", "of one above", "the least", "version 1", "with a cache"],
)
def test_what_is_free_is_the_least_of_the_systems_and_of_each_containers(tmp_path, cgroup, files, free):
    assert free_memory(machine(tmp_path, cgroup, files)) == free


def test_sizes_are_told_in_gib():
    assert [gib(size) for size in (0, 1 << 30, 5 << 28)] == ["0 GiB", "1 GiB", "1.25 GiB"]
