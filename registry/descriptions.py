"""What MLflow's pages say of a version and a release: data, metrics, the gate's table, from and until when it is served.

Whether a version is served follows the one write that releases, like the models' own aliases, and can be written again at
any time. Nothing here names a version that anything is loaded by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pliant.registry.mlflow_client import find_version
from pliant.registry.names import release as release_model
from pliant.registry.package import Package
from pliant.registry.releases import REASON, SINCE, STATE, RegistryRelease, now_text

ROWS = 24  # of a table; more are named by their number alone
DATA, COMMIT = "pliant.data", "pliant.git_commit"
NOT_YET, SERVED, UNTIL = "Not served yet.", "Served since ", "Served until "
# The last two were written by earlier versions of Pliant.
_STANDINGS = (NOT_YET, SERVED, UNTIL, "The first champion is still to come.", "Descends from version ")


def of_version(package: Package, champion: int | None) -> str:
    """Return the description of a new version. `champion`: the version of the same model that is served meanwhile.

    Its first line says whether it is served, and is written anew whenever that changes.
    """
    tags = package.tags
    facts = [
        f"Made while version {champion} was served." if champion else "Made before any version was served.",
        f"Data: `{tags[DATA]}`." if tags.get(DATA) else "",
        f"Commit: `{tags[COMMIT]}`." if tags.get(COMMIT) else "",
    ]
    lines = [NOT_YET, *(fact for fact in facts if fact)]
    rows = [(name, figure(value)) for name, value in package.metrics.items()]
    return "\n".join([*lines, *table(("metric", "value"), rows)])


def of_release(reason: str, gate: Mapping[str, Any], former: int | None) -> str:
    """Return the description of a release: why it was made, the gate's figures of both sides, and what it replaces.

    `gate`: a verdict as plain values (`passed`, `reason`, `challenger`, `champion`), or one a name.
    """
    verdicts = {"": gate} if "challenger" in gate else gate
    rows = [
        (*[name for name in (label,) if label], measure, figure(new), figure(old))
        for label, verdict in verdicts.items()
        if isinstance(verdict, Mapping)
        for measure, new, old in _compared(verdict)
    ]
    heading = ("measure", "challenger", "champion") if "" in verdicts else ("of", "measure", "challenger", "champion")
    first = f"Made on top of release {former}." if former else "The first release."
    said = f"The gate: {reason}." if reason else ""
    return "\n".join([line for line in (said, first) if line] + table(heading, rows))


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown with an empty line before it; none without rows."""
    if not rows:
        return []
    lines = ["", *(f"| {' | '.join(cells)} |" for cells in (heading, ["---"] * len(heading), *rows[:ROWS]))]
    return [*lines, "", f"and {len(rows) - ROWS} more in the run"] if len(rows) > ROWS else lines


def figure(value: object) -> str:
    """Return a number with four digits, anything else as a text without a line end or a column's end."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value).replace("|", "/").replace("\n", " ")


def _compared(verdict: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield each number of the challenger's figures with the champion's, None where it has none."""
    champion = dict(_numbers(verdict.get("champion")))
    for name, value in _numbers(verdict.get("challenger")):
        yield name, value, champion.get(name)


def _numbers(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _numbers(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for at, inner in enumerate(value):
            yield from _numbers(inner, f"{name}.{at + 1}" if len(value) > 1 else name)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name, value


def take_up(client: Any, name: str, number: int, instead_of: int | None, release: int | None) -> None:
    """Say of version `number` that it is served from now on, and of the version before it that it is so no more.

    `release`: the number of the first release that serves it, if there is one.
    """
    if instead_of is not None:
        leave(client, name, instead_of, number, release)
    _say(client, name, number, f"{SERVED}{_now()}{_of(release)}.")


def confirm(client: Any, name: str, number: int, release: int) -> None:
    """Say of version `number` that it is served where it does not: it was left out, or is of an earlier Pliant."""
    version = find_version(client, name, number)
    said = (version.description or "") if version is not None else ""
    if version is not None and not said.startswith(SERVED):
        since = _of(release) if said.startswith(UNTIL) else " or earlier"
        _say(client, name, number, f"{SERVED}{_now()}{since}.")


def leave(client: Any, name: str, number: int, instead: int | None, release: int | None) -> None:
    """Say of version `number` that it is not served any more, unless it says so already.

    `instead`: the version that took its place, None without one.
    """
    version = find_version(client, name, number)
    if version is not None and (instead is not None or (version.description or "").startswith(SERVED)):
        how = f"when version {instead} took its place" if instead else "when it was left out"
        _say(client, name, number, f"{UNTIL}{_now()}, {how}{_of(release)}.")


def note(client: Any, release: RegistryRelease, state: str, reason: str) -> None:
    """Write on a release in which state it is since now, and why. An empty state is that of the champion.

    The state is written last, so that where it stands its reason does, too.
    """
    for tag, value in ((REASON, reason), (SINCE, now_text()), (STATE, state)):
        client.set_model_version_tag(release_model(release.system), str(release.number), tag, value)


def _say(client: Any, name: str, number: int, sentence: str) -> None:
    """Put the sentence about whether a version is served in the place of the one before, as its first line."""
    version = find_version(client, name, number)
    if version is not None:
        description = version.description or ""
        first, _, rest = description.partition("\n")
        kept = rest if first.startswith(_STANDINGS) else description
        client.update_model_version(name, str(number), "\n".join(part for part in (sentence, kept) if part))


def _now() -> str:
    text = now_text()
    return f"{text[:10]} {text[11:16]} UTC"


def _of(release: int | None) -> str:
    return f" (release {release})" if release else ""
