"""`pliant journal`: what a service did, by its journal: a summary, one request's life, a trace for Perfetto, another policy.

A system whose journal has entries of its own (packing) turns them into those of pliant/protocol.py (cli/SYSTEM/journal.py).
Settings have their names, and `--what-if` its profile, from the champions of this folder.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, TextIO

from pliant import systems
from pliant.errors import InputError, PliantError
from pliant.loads import JOURNAL
from pliant.protocol import (
    Answer,
    Arrived,
    Cancelled,
    Changed,
    Drop,
    Failed,
    Finished,
    JournalEntry,
    Launch,
    Request,
    Restarted,
)
from pliant.simulator import Execute

Name = Callable[[int], str]
REASONS = {
    "late": "no way to serve it would have been in time",
    "full": "as many requests waited as may",
    "failed": "its worker failed, and no time or no attempt was left",
}
HEADINGS = ("", "requests", "in time", "utility", "p50 ms", "p99 ms", "refused")
TOGETHER = 1e-3  # seconds between two runs of a request that count as a single one
REQUESTS = 1_000_000  # number of the process that Perfetto shows requests as; devices are process 0


def command(commands: Any) -> None:
    """Add the command to those of `pliant`."""
    text = "show what a journal holds: a summary, the life of a request, a trace for Perfetto, another policy"
    parser: ArgumentParser = commands.add_parser("journal", help=text, description=text)
    parser.add_argument("file", type=Path, metavar="FILE", help="as `pliant serve SYSTEM --journal FILE` writes it")
    text = "say what became of this request, of all its parts, by its x-request-id or by its number in the journal"
    parser.add_argument("--request", metavar="ID", help=text)
    parser.add_argument("--perfetto", type=Path, metavar="OUT", help="write a trace that https://ui.perfetto.dev opens")
    text = "simulate the same arrivals under this policy (cascade: candidate), and under the default one"
    parser.add_argument("--what-if", metavar="POLICY", help=text)
    text = "whose journal it is; without it that is taken from the entries, which bins and cascade have in common"
    parser.add_argument("--system", choices=systems.names(), help=text)
    parser.set_defaults(run=run)


def run(args: Namespace) -> None:
    """Print or write what the options ask for. Raises `InputError`, `RegistryError` without a champion."""
    from pliant.report import observations, summarise

    system, entries = opened(args.file, args.system)
    began = beginning(args.file)
    if args.request is not None:
        ids, name = numbers_of(args.file, args.request), name_of(system)
        print("\n\n".join("\n".join(life(entries(), id, name, began)) for id in ids))
    if args.perfetto is not None:
        try:
            with args.perfetto.open("w", encoding="utf-8") as file:
                count = write_trace(entries(), file, name_of(system))
        except OSError as error:
            raise InputError("--perfetto", args.perfetto, f"a file that can be written ({error.strerror})") from None
        print(f"{args.perfetto} has {count:,} spans and counts: open it on https://ui.perfetto.dev")
    if args.what_if is not None:
        _what_if(args.file, system, entries, args.what_if)
    if args.request is None and args.perfetto is None and args.what_if is None:
        seen = observations(entries())
        result = summarise(seen)
        answered = [each.answered for each in seen if each.answered is not None]
        seconds = max(answered, default=0.0) - min((each.request.arrival for each in seen), default=0.0)
        refused = ", ".join(f"{count} {reason}" for reason, count in result.drops.items())
        since = f" since {began:%Y-%m-%d %H:%M:%S} UTC" if began else ""
        print(
            f"{result.requests} requests in {max(seconds, 0.0):.1f} s{since}: {len(answered)} answered, "
            f"{result.outcomes.get('late', 0)} of them late; {sum(result.drops.values())} refused"
            f"{f' ({refused})' if refused else ''}, {result.outcomes.get('cancelled', 0)} left by their clients, "
            f"{result.outcomes.get('waiting', 0)} without an end"
        )
        if answered:
            print(f"p50 {1e3 * result.p50:.1f} ms, p99 {1e3 * result.p99:.1f} ms, mean batch {result.batch:.2f}")


def recorded(load: str, system: str, most: int) -> list[Request]:
    """Return the requests of a load `journal:FILE`, with the times of that service. Raises `InputError`."""
    from pliant.report import observations

    path = Path(load.removeprefix(JOURNAL))
    _, entries = opened(path, system)
    requests = [each.request for each in observations(entries())]
    if not 0 < len(requests) <= most:
        raise InputError("load", path, f"a journal of 1 to {most:,} requests")
    return requests


def opened(path: Path, named: str | None) -> tuple[str | None, Callable[[], Iterator[JournalEntry]]]:
    """Return whose journal it is, as far as that is known, and what yields its entries. Raises `InputError`.

    A last line without its end, as a killed or running process leaves it, is passed over, which is said.
    """
    from pliant.serving.journal import entries, run_lines

    lines = run_lines(path)
    try:
        first = next((json.loads(line) for _, _, line in lines), None)
    except ValueError:
        first = None
    if not isinstance(first, dict) or "now" not in first:
        raise InputError("journal", path, "a file that a service wrote with --journal, with at least one whole entry")
    with path.open("rb") as file:
        file.seek(-1, 2)
        if file.read(1) != b"\n":
            print(f"{path} is cut off in its last entry, which is passed over.", file=sys.stderr)
    own = [each for each in systems.listed() if each.has("cli", "journal")]
    if "event" not in first:
        system = own[0] if named is None else systems.system(named)
        if system not in own:
            raise InputError("--system", named, f"{' or '.join(each.name for each in own)}, by the entries of {path}")
        return system.name, lambda: system.part("cli", "journal").entries(path)
    if named in [each.name for each in own]:
        raise InputError("--system", named, f"another one, by the entries of {path}")
    facts = first["event"].get("facts", {})
    return named or ("tokens" if "latency" in facts else None), lambda: entries(path)


def beginning(path: Path) -> datetime | None:
    """Return the wall clock (UTC) of a journal's first entry; None where it was not kept. Raises `InputError`."""
    from pliant.serving.journal import run_lines

    _, _, line = next(run_lines(path))
    try:
        return datetime.fromtimestamp(json.loads(line)["wall"], UTC)
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return None


def name_of(system: str | None) -> Name:
    """Return the name of a launch's setting, by the champions of this folder; its number where there are none."""
    names: Mapping[int, str] = {}
    if system is not None:
        try:
            names = systems.system(system).part("cli", "simulate").setting_names()
        except PliantError as error:
            print(f"settings have numbers here, since {error}", file=sys.stderr)
    return lambda setting: names.get(setting, f"setting {setting}")


@dataclass(frozen=True, slots=True)
class LaunchSpan:
    """A launch that has ended: times in seconds; `failed`: why, or nothing."""

    launch: Launch
    sent: float
    begin: float
    end: float
    failed: str = ""


def ran(entries: Iterable[JournalEntry]) -> Iterator[tuple[JournalEntry, LaunchSpan | None]]:
    """Yield each entry with the launch that it ends. A launch begins when the one before it on its device has ended."""
    sent: dict[int, tuple[Launch, float]] = {}
    free_at: dict[int, float] = {}
    for entry in entries:
        ended, event = None, entry.event
        if isinstance(event, Restarted):
            sent.clear()
        if isinstance(event, Finished | Failed) and event.launch in sent:
            launch, at = sent.pop(event.launch)
            begin = min(max(at, free_at.get(launch.worker, at)), entry.now)
            free_at[launch.worker] = entry.now
            ended = LaunchSpan(launch, at, begin, entry.now, event.reason if isinstance(event, Failed) else "")
        for action in entry.actions:
            if isinstance(action, Launch):
                sent[action.id] = action, entry.now
        yield entry, ended


def lasted(path: Path, system: str, execute: Execute) -> list[tuple[float, float]]:
    """Return the seconds of each launch as `execute` has them, and those for which it kept its device. Raises `InputError`.

    Only launches behind the last change of what was served count, and none of a setting or a request that is not known.
    """
    pairs = list[tuple[float, float]]()
    for entry, ended in ran(opened(path, system)[1]()):
        if isinstance(entry.event, Changed):
            pairs.clear()
        elif ended is not None and ended.launch.kind == "run" and not ended.failed:
            with suppress(LookupError, ValueError):
                pairs.append((execute(ended.launch)[0], ended.end - ended.begin))
    return pairs


def _follow(entry: JournalEntry, ended: LaunchSpan | None, waiting: set[int], pending: set[int]) -> None:
    """Keep the requests that have no end yet, and those of them that are in no launch."""
    if isinstance(entry.event, Arrived):
        waiting.add(entry.event.request.id)
        pending.add(entry.event.request.id)
    elif isinstance(entry.event, Cancelled):
        waiting.discard(entry.event.request)
        pending.discard(entry.event.request)
    if ended is not None:
        waiting.update(pending.intersection(ended.launch.requests))
    for action in entry.actions:
        if isinstance(action, Launch):
            waiting.difference_update(action.requests)
        else:
            waiting.discard(action.request)
            pending.discard(action.request)


def _where(each: LaunchSpan, name: Name) -> str:
    count = len(each.launch.requests)
    return (
        f"{name(each.launch.setting)}, alone" if count == 1 else f"{name(each.launch.setting)}, in a batch of {count}"
    )


def numbers_of(path: Path, name: str) -> list[int]:
    """Return the numbers of what a client knows by this name: the parts of one request, or several. Raises `InputError`."""
    from pliant.serving.journal import run_lines

    part = f'"request_id": {json.dumps(name)}}}'
    numbers = [int(json.loads(line)["event"]["id"]) for _, _, line in run_lines(path) if line.endswith(part)]
    if not numbers and not name.isdecimal():
        raise InputError(
            "--request", name, f"a number, or the x-request-id of a request, in {path} (packing: a number)"
        )
    return list(dict.fromkeys(numbers)) or [int(name)]


def life(entries: Iterable[JournalEntry], id: int, name: Name, began: datetime | None = None) -> list[str]:
    """Return what happened to a request, a sentence a line, in seconds since the journal began. Raises `InputError`.

    `began`: by the wall clock, which is then in front.
    """
    request: Request | None = None
    waiting, pending = set[int](), set[int]()
    ahead, since, said = list[LaunchSpan](), 0.0, list[tuple[float, str]]()
    last: LaunchSpan | None = None
    first: float | None = None

    def say(at: float, sentence: str) -> None:
        said.append((at, sentence))

    def end_run() -> None:
        nonlocal last
        if last is not None:
            after = f", {1e3 * (last.end - last.begin):.1f} ms" + (f"; it failed: {last.failed}" if last.failed else "")
            say(last.begin, f"It ran on device {last.launch.worker} with {_where(last, name)}{after}.")
            last = None

    for entry, ended in ran(entries):
        first = entry.now if first is None else first
        event, now = entry.event, entry.now
        if isinstance(event, Arrived) and event.request.id == id and request is None:
            request, since, ahead = event.request, min(event.request.arrival, now), []
            seconds = request.deadline - since
            left = f", with {seconds:.3f} s to its deadline" if seconds < float("inf") else ""
            long = f" of {request.length} tokens" if request.length else ""
            say(since, f"Request {id}{long} came for {request.task}{left}; {len(waiting)} waited before it.")
        _follow(entry, ended, waiting, pending)
        if request is None:
            continue
        if ended is not None and id in ended.launch.requests:
            same = last is not None and last.launch.setting == ended.launch.setting and not last.failed
            if last is not None and same and ended.begin - last.end <= TOGETHER:
                most = max(last.launch, ended.launch, key=lambda launch: len(launch.requests))
                last = replace(last, launch=most, end=ended.end, failed=ended.failed)
            else:
                end_run()
                last, ahead = ended, []
        elif ended is not None:
            ahead.append(ended)
        if isinstance(event, Cancelled) and event.request == id:
            end_run()
            say(now, f"Its client left, {now - request.arrival:.3f} s after it came.")
            request = None
            continue
        if isinstance(event, Restarted):
            say(now, f"The scheduler failed ({event.reason}), and a fresh one took its place.")
        for action in entry.actions:
            if isinstance(action, Launch) and id in action.requests:
                if last is not None and now - last.end <= TOGETHER:
                    continue
                since = since if last is None else last.end
                end_run()
                others = sum(len(each.launch.requests) for each in ahead)
                busy = f", while {len(ahead)} launches with {others} requests ended before it" if ahead else ""
                if now > since:
                    say(now, f"It had waited {1e3 * (now - since):.1f} ms{busy}.")
                ahead = []
            if isinstance(action, Answer | Drop) and action.request == id:
                end_run()
                if isinstance(action, Drop):
                    passed = action.reason == "late" and request.deadline <= now
                    why = "its deadline had passed" if passed else REASONS.get(action.reason, action.reason)
                    say(now, f'It was refused as "{action.reason}": {why}.')
                else:
                    late = now - request.deadline
                    by = f"{late:.3f} s too late" if late > 0 else "in time"
                    more = f" No further launch followed: {action.reason}." if action.reason else ""
                    say(now, f"It was answered {by}, {now - request.arrival:.3f} s after it came.{more}")
                request = None
                break
    if not said:
        raise InputError("--request", id, "the number of a request that this journal holds")
    end_run()
    if request is not None:
        say(now, "The journal ends before the request does.")
    lines, start = [], first or 0.0
    for at, sentence in said:
        clock = f"{began + timedelta(seconds=at - start):%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC" if began else ""
        lines.append(f"{clock}{at - start:10.3f} s  {sentence}")
    return lines


def write_trace(entries: Iterable[JournalEntry], file: TextIO, name: Name) -> int:
    """Write Chrome's trace events: a track a device, a span a launch and a request, counters. Return how many there are.

    Times are microseconds. Source: Trace Event Format (Google), which Perfetto reads.
    """
    count, devices, quoted, former = 0, set[int](), cache(json.dumps), (-1, -1)
    waiting, pending = set[int](), set[int]()
    lives: dict[int, tuple[Request, float]] = {}
    runs: dict[int, list[LaunchSpan]] = {}
    running = 0

    def put(line: str) -> None:
        nonlocal count
        file.write(f",\n{line}" if count else line)
        count += 1

    def end(id: int, now: float, how: str) -> None:
        """Write the span of a request, and below it those of its runs."""
        request, came = lives.pop(id)
        head = f'"cat":"request","id":{id},"pid":{REQUESTS},"tid":0'
        more = f',"tenant":{quoted(request.tenant)}' if request.tenant else ""
        args = f'{{"request":{id},"end":{quoted(how)},"tokens":{request.length}{more}}}'
        put(f'{{"ph":"b","ts":{1e6 * came:.1f},"name":{quoted(request.task)},{head},"args":{args}}}')
        for each in runs.pop(id, ()):
            what = quoted(name(each.launch.setting))
            put(f'{{"ph":"b","ts":{1e6 * each.begin:.1f},"name":{what},{head}}}')
            put(f'{{"ph":"e","ts":{1e6 * min(each.end, now):.1f},"name":{what},{head}}}')
        put(f'{{"ph":"e","ts":{1e6 * now:.1f},"name":{quoted(request.task)},{head}}}')

    file.write('{"displayTimeUnit":"ms","traceEvents":[\n')
    put('{"ph":"M","pid":0,"name":"process_name","args":{"name":"devices"}}')
    put(f'{{"ph":"M","pid":{REQUESTS},"name":"process_name","args":{{"name":"requests"}}}}')
    now = 0.0
    for entry, ended in ran(entries):
        event, now = entry.event, entry.now
        if isinstance(event, Arrived):
            lives[event.request.id] = event.request, min(event.request.arrival, now)
        elif isinstance(event, Cancelled) and event.request in lives:
            end(event.request, now, "cancelled")
        elif isinstance(event, Restarted | Changed):
            running = 0 if isinstance(event, Restarted) else running
            what = "restarted" if isinstance(event, Restarted) else "changed"
            put(f'{{"ph":"i","s":"g","ts":{1e6 * now:.1f},"pid":0,"tid":0,"name":"{what}"}}')
        if ended is not None:
            launch = ended.launch
            running -= 1
            if launch.worker not in devices:
                devices.add(launch.worker)
                args = f'"args":{{"name":"device {launch.worker}"}}'
                put(f'{{"ph":"M","pid":0,"tid":{launch.worker + 1},"name":"thread_name",{args}}}')
            what = quoted(name(launch.setting) if launch.kind == "run" else launch.kind)
            failed = f',"failed":{quoted(ended.failed)}' if ended.failed else ""
            put(
                f'{{"ph":"X","ts":{1e6 * ended.begin:.1f},"dur":{1e6 * (ended.end - ended.begin):.1f},"pid":0,'
                f'"tid":{launch.worker + 1},"name":{what},"args":{{"launch":{launch.id},'
                f'"requests":{len(launch.requests)}{failed}}}}}'
            )
            for id in launch.requests:
                if id in lives:
                    before = runs.setdefault(id, [])
                    if (
                        before
                        and before[-1].launch.setting == launch.setting
                        and ended.begin - before[-1].end <= TOGETHER
                    ):
                        before[-1] = LaunchSpan(launch, before[-1].sent, before[-1].begin, ended.end)
                    else:
                        before.append(ended)
        _follow(entry, ended, waiting, pending)
        for action in entry.actions:
            if isinstance(action, Launch):
                running += 1
            elif action.request in lives:
                late = isinstance(action, Answer) and now > lives[action.request][0].deadline
                end(action.request, now, action.reason or ("late" if late else "answered"))
        if former != (present := (len(waiting), running)):
            args = f'{{"waiting":{present[0]},"running":{present[1]}}}'
            put(f'{{"ph":"C","ts":{1e6 * now:.1f},"pid":0,"name":"requests waiting, launches running","args":{args}}}')
            former = present
    for id in list(lives):
        end(id, now, "without an end")
    file.write("\n]}\n")
    return count


def _what_if(path: Path, system: str | None, entries: Callable[[], Iterator[JournalEntry]], policy: str) -> None:
    """Print what happened, and what the profile gives for the same arrivals under two policies. Raises `PliantError`."""
    from pliant.cli import options
    from pliant.flows import settings
    from pliant.report import observations, summarise

    if system is None:
        raise InputError("--system", "not given", "bins or cascade for --what-if, whose entries look alike")
    launches = (action for entry in entries() for action in entry.actions if isinstance(action, Launch))
    workers, happened = 1 + max((launch.worker for launch in launches), default=0), observations(entries())
    simulations = systems.system(system).part("cli", "simulate").simulations
    rows = {"as it happened": happened}
    for name in dict.fromkeys(("default", policy)):
        requests, play = simulations(settings.prepare(), f"journal:{path}", name)[0].draw(0)
        rows[f"{name}, simulated"] = play(requests, workers)[0]
    cells = []
    for name, seen in rows.items():
        result = summarise(seen)
        utility = f"{result.utility:.1f}" if result.outcomes.get("unlabelled", 0) == 0 else "-"
        times = f"{1e3 * result.p50:.1f}", f"{1e3 * result.p99:.1f}"
        shown = f"{result.attainment:.1%}", utility, *times, str(sum(result.drops.values()))
        cells.append((name, str(result.requests), *shown))
    options.show(f"{path.name}: the same arrivals on {workers} x the champion's profile", HEADINGS, cells)
