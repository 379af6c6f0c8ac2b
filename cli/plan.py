"""`pliant plan SYSTEM`: how many devices a load needs, so that a share of its requests is answered in time.

The scheduler that serves is simulated on the champion's profile with 1, 2, 4, ... devices, then by bisection, on loads of
several seeds, whose medians decide. Other classes of device are planned for where a release was measured on them.
"""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pliant import systems
from pliant.cli import options
from pliant.errors import InputError, PliantError
from pliant.loads import JOURNAL
from pliant.report import Observation, summarise
from pliant.worlds import Course, FrontDoor, Measured

if TYPE_CHECKING:
    from pliant.flows.settings import Settings

Uses = Mapping[str, float]
Took = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Seconds of launches by the profile, and those that they took."""
MORE = 1.25  # times the load, at which a plan is looked at, too
LARGEST, HALVINGS = 4.0, 4  # times the load up to which is looked for what a plan bears, and how finely
RECENT = 8  # releases that are looked at for other classes of device
NEAR = 2  # further counts of devices that must be enough as well
ALONE, LEISURE = 200, 20.0  # requests that are played alone, and times their deadlines without haste
CHOICES = ("policy", "gamma", "dispatch", "placement", "candidate")  # options of systems that `simulations` takes
HTTP = "HTTP's own time is not in it (--http, --overhead)."
COLOURS = ("#1f5f8b", "#c1440e", "#777777", "#e08e0b")


class Play(Protocol):
    """Plays requests on so many devices, in the world of `course` (None: as the profile says).

    It gives what became of each, and what was used: setting -> share of the answers, or of the memory.
    """

    def __call__(
        self, requests: Sequence[Any], devices: int, /, course: Course | None = None
    ) -> tuple[list[Observation], Uses]: ...


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a system serves, under a load. `published`: when its profile was (ISO 8601).

    `draw`: for a seed the requests, and what plays such requests. `lasted`: of a journal's launches the seconds by the
    profile, and those for which they kept their device.
    """

    name: str
    device: str  # class
    published: str
    draw: Callable[[int], tuple[Sequence[Any], Play]]
    lasted: Callable[[Path], Iterable[tuple[float, float]]]


Figures = Mapping[str, Any]
"""How a load fares on so many `devices`: `attainment` and that of the `worst` seed, `utility` as a share of what is offered
(NaN: unknown), requests in time `per_second`, `p50` and `p99` in seconds, `uses`. Medians over the seeds."""

Plan = Mapping[str, Any]
"""`devices`: the least that are enough (None: no number is, for a `reason`), which bear `bears` times the load, and at MORE
times it answer the share `more` in time; `counts`: of other numbers; `warnings`; name, device and published."""


def add_options(parser: ArgumentParser, system: systems.System) -> None:
    """Add the options of `pliant plan` to those of the system."""
    system.part("cli", "options").simulate(parser)
    parser.set_defaults(workers=None)
    text = "seconds from arrival to answer, of every request (default: the deadlines of the load)"
    parser.add_argument("--slo", type=float, metavar="SECONDS", help=text)
    text = (
        "seconds of a core that the endpoint takes for a request: growth of pliant_loop_seconds by answer (default: 0)"
    )
    parser.add_argument("--http", type=float, default=0.0, metavar="SECONDS", help=text)
    text = "seconds beyond that from a client to the endpoint and back (default: 0)"
    parser.add_argument("--overhead", type=float, default=0.0, metavar="SECONDS", help=text)
    text = "share of the requests to be answered in time (default: 0.99)"
    parser.add_argument("--attainment", type=float, default=0.99, metavar="SHARE", help=text)
    text = "plan for so many times the load, which then comes in as much less time (default: 1)"
    parser.add_argument("--times", type=float, default=1.0, metavar="FACTOR", help=text)
    parser.add_argument("--most", type=int, default=64, metavar="N", help="devices at most (default: 64)")
    text = "loads that are drawn, whose median decides (default: 3)"
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help=text)
    parser.add_argument("--plot", type=Path, metavar="OUT.png", help="draw devices over the share answered in time")


def run(args: Namespace) -> int:
    """Print the plans; return 1 where no number of devices is enough. Raises `PliantError`."""
    part = systems.system(args.system).part("cli", "simulate")
    if not hasattr(part, "simulations"):
        raise InputError("SYSTEM", args.system, "one whose cli role simulate has `simulations`")
    _check(args)
    from pliant.flows import settings
    from pliant.flows.progress import stage

    chosen, plans, own = options.given(args, CHOICES), list[Plan](), ""
    for each in _of_each_class(settings.prepare(), args.system, lambda at: part.simulations(at, args.load, **chosen)):
        with stage(f"{each.name} on {each.device}"):
            seeds = range(args.seed, args.seed + args.seeds)
            own = own or each.device  # that of the champions, which a journal is of
            launches, said = took(each, args.load, own)
            real = as_served(each, args.overhead, args.http, launches)
            answer = plan(real, args.slo, args.attainment, args.times, args.most, seeds)
            http = () if args.overhead or args.http else (HTTP,)
            plans.append({**answer, "warnings": [*_warnings(each, args.system), *said, *http]})
    what = f"{args.load} at {args.times:g}x, {args.attainment:.4g} in time"
    what += f" ({1e3 * args.slo:g} ms)" if args.slo else ""
    if args.plot is not None:
        _plot(plans, args.attainment, what, args.plot)
    if args.json:
        goal = {
            name: getattr(args, name)
            for name in ("system", "load", "slo", "overhead", "http", "attainment", "times", "most", "seeds")
        }
        options.print_json({**goal, "plans": plans})
    else:
        for planned in plans:
            _print(planned, what)
    return 0 if all(each["devices"] is not None for each in plans) else 1


def _check(args: Namespace) -> None:
    for option, value, fits, limit in (
        ("--workers", args.workers, args.workers is None, "left out, as a plan says how many"),
        ("--slo", args.slo, args.slo is None or 0 < args.slo < math.inf, "seconds above 0"),
        ("--overhead", args.overhead, 0 <= args.overhead < (args.slo or math.inf), "seconds from 0 up to --slo"),
        ("--http", args.http, 0 <= args.http < math.inf, "seconds, at least 0"),
        ("--times", args.times, 0 < args.times < math.inf, "a number above 0"),
        ("--attainment", args.attainment, 0 < args.attainment <= 1, "a share above 0, up to 1"),
        ("--most", args.most, args.most >= 1, "at least 1"),
        ("--seeds", args.seeds, args.seeds >= 1, "at least 1"),
        ("--seed", args.seed, args.seed >= 0, "at least 0"),
    ):
        if not fits:
            raise InputError(option, value, limit)
    if args.plot is not None and (args.plot.suffix != ".png" or not args.plot.absolute().parent.is_dir()):
        raise InputError("--plot", args.plot, "a name that ends in .png, in a folder that is there")


def _of_each_class(
    project: Settings, system: str, simulations: Callable[[Settings], list[Simulation]]
) -> Iterator[Simulation]:
    """Yield what the champions give, then the newest release of each other class of device that still can be read."""
    from pliant.flows.release import open_registry
    from pliant.registry import mlflow_switch

    yield from (champions := simulations(project))
    known = {each.device for each in champions}
    for release in mlflow_switch.history(open_registry(project, system), system)[:RECENT]:
        if release.state in (mlflow_switch.REFUSED, mlflow_switch.TAKEN_BACK):
            continue
        with suppress(PliantError):  # of another version of Pliant, or parts of it were removed
            others = simulations(replace(project, release=release.number))
            yield from (each for each in others if each.device not in known)
            known |= {each.device for each in others}


def _warnings(simulation: Simulation, system: str) -> Iterator[str]:
    from pliant.device import resolve_device
    from pliant.flows.config import FlowConfig, configured_class

    day, here = simulation.published[:10], configured_class(FlowConfig(device=resolve_device("auto")))
    if day and day != datetime.now(UTC).date().isoformat():
        yield f"Its profile is of {day}: `pliant profile {system}` measures it anew."
    if simulation.device != here:
        yield f"It was measured on {simulation.device}, and this machine has {here}: that one needs other numbers."


def took(simulation: Simulation, load: str, device: str) -> tuple[Took | None, Sequence[str]]:
    """Return what the launches of a load that is a journal took, and a sentence on that. Raises `InputError`.

    `device`: class of those that the journal is of. What others take, it does not say.
    """
    if not load.startswith(JOURNAL):
        return None, ()
    path = Path(load.removeprefix(JOURNAL))
    pairs = [pair for pair in simulation.lasted(path) if min(pair) > 0] if simulation.device == device else []
    older = simulation.published and datetime.fromisoformat(simulation.published).timestamp() > path.stat().st_mtime
    if older or not pairs:
        return None, ("The journal's launches are of another profile, so they take what this one says.",)
    expected_N, took_N = np.array(pairs).T
    times = float(np.median(took_N / expected_N))
    return (expected_N, took_N), (f"Launches take what the journal's {len(pairs):,} took: {times:.2f} x the profile.",)


def as_served(simulation: Simulation, overhead: float, http: float, launches: Took | None = None) -> Simulation:
    """Return the simulation with what a service meets beside its scheduler and its profile.

    One core takes half of `http` seconds to read each request, and half to write its answer, which comes `overhead` seconds
    later, by which a service decides sooner. `launches`: what others took.
    """

    def draw(seed: int) -> tuple[Sequence[Any], Play]:
        requests, play = simulation.draw(seed)

        def played(some: Sequence[Any], devices: int, course: Course | None = None) -> tuple[list[Observation], Uses]:
            reading, both, written = FrontDoor(http / 2), FrontDoor(http / 2), dict[int, float]()
            inside = [
                replace(each, arrival=reading.passes(each.arrival), deadline=each.deadline - overhead)
                for each in sorted(some, key=lambda each: each.arrival)
            ]
            course = Measured(*launches, seed) if course is None and launches is not None else course
            seen, uses = play(inside, devices, course)
            answers = [(each.answered, each.request.id) for each in seen if each.answered is not None]
            for at, id in sorted([*((each.arrival, -1) for each in some), *answers]):
                written[id] = both.passes(at) + overhead
            of = {each.id: each for each in some}
            pairs = ((each, of[each.request.id]) for each in seen)
            return [
                replace(
                    each,
                    request=replace(each.request, arrival=own.arrival, deadline=own.deadline),
                    answered=None if each.answered is None else written[own.id],
                )
                for each, own in pairs
            ], uses

        return requests, played

    return replace(simulation, draw=draw)


def plan(
    simulation: Simulation, slo: float | None, attainment: float, times: float, most: int, seeds: Sequence[int]
) -> Plan:
    """Return the least number of devices up to `most` that answers this share in time, without warnings.

    `slo`: seconds from arrival to answer; None: as the load says. `times`: the load. Raises `InputError`.
    """
    draws, counts = [simulation.draw(seed) for seed in seeds], dict[int, Figures]()
    if not all(requests for requests, _ in draws):
        raise InputError("load", "no request", "at least one in the time given")
    if slo is None and any(math.isinf(request.deadline) for request in draws[0][0]):
        raise InputError("--slo", "not given", "seconds, since this load has no deadlines")

    def enough(devices: int) -> bool:
        if devices not in counts:
            counts[devices] = fares(draws, devices, times, slo)
        return bool(counts[devices]["attainment"] >= attainment)

    devices, reason, bears, more = least(enough, most), "", math.nan, math.nan
    if devices is None:
        reason = _reason(*draws[0], slo, attainment, counts[most])
    else:
        more = fares(draws, devices, times * MORE, slo)["attainment"]
        bears, too_much = 1.0, LARGEST
        for _ in range(HALVINGS):
            tried = math.sqrt(bears * too_much)
            kept = fares(draws, devices, times * tried, slo)["attainment"] >= attainment
            bears, too_much = (tried, too_much) if kept else (bears, tried)
    about = {"name": simulation.name, "device": simulation.device, "published": simulation.published}
    rows = [counts[count] for count in sorted(counts)]
    return {**about, "devices": devices, "reason": reason, "bears": bears, "more": more, "counts": rows}


def least(enough: Callable[[int], bool], most: int) -> int | None:
    """Return the least number up to `most` that is enough, as are the next `NEAR`; None if there is none.

    Where more devices are seen to be too few although fewer were enough, the search goes on beyond them.
    """
    too_few = 0
    while too_few < most:
        count = too_few + 1
        while not enough(count):
            if count == most:
                return None
            too_few, count = count, min(2 * count, most)
        while count - too_few > 1:
            middle = (too_few + count) // 2
            too_few, count = (too_few, middle) if enough(middle) else (middle, count)
        beyond = (further for further in range(count + 1, min(count + NEAR, most) + 1) if not enough(further))
        too_few = next(beyond, 0)
        if not too_few:
            return count
    return None


def with_shares(
    play: Callable[[Sequence[Any], int, Course | None], list[Observation]], names: Mapping[int, str]
) -> Play:
    """Return what plays requests and gives, beside what became of them, the share of the answers of each setting."""

    def played(requests: Sequence[Any], devices: int, course: Course | None = None) -> tuple[list[Observation], Uses]:
        seen = play(requests, devices, course)
        counts = Counter(names.get(each.setting, "") for each in seen if each.setting is not None)
        return seen, {name: count / counts.total() for name, count in counts.most_common()}

    return played


def changed(requests: Sequence[Any], times: float, slo: float | None) -> list[Any]:
    """Return the requests within a shorter time, each with `slo` seconds to its deadline; None: with its own."""
    left = [request.deadline - request.arrival if slo is None else slo for request in requests]
    arrivals = [request.arrival / times for request in requests]
    return [replace(r, arrival=at, deadline=at + n) for r, at, n in zip(requests, arrivals, left, strict=True)]


def fares(draws: Sequence[tuple[Sequence[Any], Play]], devices: int, times: float, slo: float | None) -> Figures:
    """Return how loads that `changed` has made denser fare on so many devices."""
    rows, used = [], list[Uses]()
    for requests, play in draws:
        observed, uses = play(changed(requests, times, slo), devices)
        result, ends = summarise(observed), [each.answered or each.request.arrival for each in observed]
        seconds = max(max(ends) - min(each.request.arrival for each in observed), 1e-9)
        known = result.outcomes.get("unlabelled", 0) == 0
        utility = result.utility / result.offered if known and result.offered else math.nan
        per_second = result.attainment * result.requests / seconds
        rows.append((result.attainment, utility, per_second, result.p50, result.p99))
        used.append(uses)
    names = ("attainment", "utility", "per_second", "p50", "p99")
    figures = {name: median(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    uses = {name: median(each.get(name, 0.0) for each in used) for name in dict.fromkeys(n for u in used for n in u)}
    return {"devices": devices, "worst": min(row[0] for row in rows), **figures, "uses": uses}


def _reason(requests: Sequence[Any], play: Play, slo: float | None, attainment: float, best: Figures) -> str:
    """Return why no number of devices is enough: requests alone on a device are late, or there are more than `most` bear."""

    def alone(slower: float) -> Any:
        left = [slower * (each.deadline - each.arrival) for each in changed(requests[:ALONE], 1.0, slo)]
        starts = [10 * max(left) * number for number in range(len(left))]
        some = [replace(r, arrival=at, deadline=at + n) for r, at, n in zip(requests, starts, left, strict=False)]
        return summarise(play(some, 1)[0])

    if (hasty := alone(1.0)).attainment < attainment:
        return (
            f"alone on a device, {hasty.attainment:.1%} of the requests are answered in time; without haste one takes "
            f"{1e3 * alone(LEISURE).p50:.1f} ms (p50)"
        )
    return f"on {best['devices']}, {best['attainment']:.1%} of the requests are in time; --most allows more"


def _print(plan: Plan, what: str) -> None:
    rows, devices = [], plan["devices"]
    for row in plan["counts"]:
        if devices is None or abs(row["devices"] - devices) <= NEAR:
            used = ", ".join(f"{name}: {share:.0%}" for name, share in row["uses"].items() if share >= 0.005)
            utility = "-" if math.isnan(row["utility"]) else f"{row['utility']:.1%}"
            cells = f"{row['attainment']:.2%}", f"{row['worst']:.2%}", utility, f"{row['per_second']:.1f}"
            rows.append((str(row["devices"]), *cells, f"{1e3 * row['p50']:.1f}", f"{1e3 * row['p99']:.1f}", used))
    headings = ("devices", "in time", "worst seed", "utility", "in time/s", "p50 ms", "p99 ms", "used")
    options.show(f"{plan['name']} on {plan['device']}: {what}", headings, rows)
    bears = (
        f"about {plan['bears']:.2g} times this load" if plan["bears"] < 0.9 * LARGEST else "4 times this load or more"
    )
    said = (
        f"{devices} x {plan['device']} are enough, and bear {bears}; at {MORE} times it {plan['more']:.1%} are in time."
    )
    no = f"No number of devices up to {plan['counts'][-1]['devices']} is enough: {plan['reason']}."
    print(no if devices is None else said, *plan["warnings"], sep="\n")


def _plot(plans: Sequence[Plan], attainment: float, what: str, path: Path) -> None:
    """Draw devices over the share answered in time, a line for each class of device. Raises `InputError`."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes, low = figure.subplots(), attainment
    for colour, each in zip(COLOURS * len(plans), plans, strict=False):
        devices, shares, worst = zip(
            *((n["devices"], n["attainment"], n["worst"]) for n in each["counts"]), strict=True
        )
        low = min(low, *worst)
        axes.hlines(devices, worst, shares, color=colour, alpha=0.4, linewidth=4)
        axes.plot(shares, devices, "o-", color=colour, label=f"{each['name']} on {each['device']}")
        if each["devices"] is not None:
            axes.plot(shares[devices.index(each["devices"])], each["devices"], "o", color=colour, ms=12, label="enough")
            axes.plot(each["more"], each["devices"], "x", color=colour, label=f"the same at {MORE} times the load")
    axes.axvline(attainment, color="black", linewidth=0.8, linestyle=":", label="to be reached")
    axes.set(xlim=(low - 0.01, 1.005), ylim=(0, None), ylabel="devices", title=what)
    axes.set_xlabel("share of the requests answered in time (bar: to the worst seed)")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False)
    try:
        figure.savefig(path, dpi=110)
    except OSError as error:
        raise InputError("--plot", path, f"a file that can be written ({error.strerror})") from None
