"""The exact versions of what a bento needs while it serves: a part of constraints.txt, derived from what is installed.

The roots are the dependencies of the extra `serve`; with them come those that their installed distributions name, for any
Python and platform that Pliant runs on.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pliant.errors import InputError

ROOTS = "pliant[serve,postgres]"  # a registry may be a database in Postgres
PROJECTS = (".", "packages/pliant-core")
GPU_ONLY = re.compile(r"(nvidia|cuda)-.+|triton")
"""What torch's build for GPUs needs, in versions that it names itself; the build for CPUs runs without."""
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = (("linux", "Linux", "x86_64"), ("linux", "Linux", "aarch64"), ("darwin", "Darwin", "arm64"))

Requires = Callable[[str], Sequence[str]]


def pins(root: Path) -> str:
    """Return the lines of constraints.txt that a service needs, of the checkout `root`.

    Raises `InputError` where another version is installed than is pinned: it may need something else.
    """
    ours = dict(project_requires(root / folder) for folder in PROJECTS)
    needed = closure([Requirement(ROOTS)], lambda name: ours.get(name) or installed_requires(name))
    lines = (root / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return "\n".join(pinned_lines(lines, needed - ours.keys())) + "\n"


def project_requires(folder: Path) -> tuple[str, list[str]]:
    """Return the name of a project of ours and what it needs, as the distribution that is built of it will name it."""
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].items()
    of_extras = [f"{text}; extra == '{extra}'" for extra, texts in extras for text in texts]
    return project["name"], [*project["dependencies"], *of_extras]


def pinned_lines(lines: Iterable[str], names: Iterable[str]) -> Iterator[str]:
    """Yield the pins of these distributions. Raises `InputError` if one is installed in another version or not pinned."""
    wanted = set(names)
    pinned: dict[str, set[str]] = {}  # versions by name: it may be another one on another Python
    for line in lines:
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        if name in wanted:
            pinned.setdefault(name, set()).add(str(requirement.specifier).removeprefix("=="))
            yield line
    for missing in wanted - set(pinned):
        if _installed_version(missing):
            raise InputError("constraints.txt", f"without {missing}", "remade by `make lock`: services need it")
    for pin, versions in pinned.items():
        if (version := _installed_version(pin)) and version.partition("+")[0] not in versions:
            raise InputError(
                f"the installed {pin}", version, f"{' or '.join(sorted(versions))}, as constraints.txt says"
            )


def closure(roots: Iterable[Requirement], requires: Requires) -> set[str]:
    """Return the canonical names of the roots and all that they need anywhere, without what torch needs on GPUs alone."""
    names: set[str] = set()
    seen: set[tuple[str, str]] = set()
    waiting = [(root, "") for root in roots]
    while waiting:
        requirement, extra = waiting.pop()
        name = canonicalize_name(requirement.name)
        if not _applies(requirement, extra):
            continue
        names.add(name)
        for part in ("", *requirement.extras):
            if (name, part) not in seen:
                seen.add((name, part))
                needs = [Requirement(text) for text in requires(name)]
                waiting += [(need, part) for need in needs if name != "torch" or not GPU_ONLY.fullmatch(need.name)]
    return names


def installed_requires(name: str) -> Sequence[str]:
    """Return what an installed distribution names as its needs; nothing for one that this platform does without."""
    try:
        return distribution(name).requires or ()
    except PackageNotFoundError:
        return ()


def _installed_version(name: str) -> str:
    try:
        return distribution(name).version
    except PackageNotFoundError:
        return ""


def _applies(requirement: Requirement, extra: str) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({**environment, "extra": extra}) for environment in _environments())


def _environments() -> Iterator[Mapping[str, str]]:
    for python in PYTHONS:
        for platform, system, machine in PLATFORMS:
            yield {
                **{name: str(value) for name, value in default_environment().items()},
                "python_version": python,
                "python_full_version": f"{python}.1",
                "sys_platform": platform,
                "platform_system": system,
                "platform_machine": machine,
            }
