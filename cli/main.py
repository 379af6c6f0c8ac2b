"""`pliant`: demo, status, promote, rollback, schedule, watch, journal, label, forget, clean, keys, sign, bento, ui; a
system's init, train, profile, serve, plan, ...

Every failure that is a `PliantError` is one sentence on standard error and exit status 2; a target that is missed is exit
status 1, and 3 where a bench had no time to measure all of them. Heavy imports wait until a command needs them.
"""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pliant import redaction, systems
from pliant.cli import bento, clean, init, journal, keys, label, options, plan, releases, sign, ui, watch
from pliant.errors import InputError, PliantError

if TYPE_CHECKING:
    from pliant.serving.launch import Service

Run = Callable[[Namespace], int | None]
AddOptions = Callable[..., None]  # of a parser and a system


class Command(ArgumentParser):
    """A parser that `fill` gives its options when it is asked for them, so that no other command's are imported."""

    def __init__(self, *args: Any, fill: Callable[[ArgumentParser], None] | None = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self._fill = fill

    def filled(self) -> Command:
        fill, self._fill = self._fill, None
        if fill is not None:
            fill(self)
        return self

    def parse_known_args(self, *args: Any, **more: Any) -> Any:
        return super(Command, self.filled()).parse_known_args(*args, **more)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    redaction.install()
    commands = command_line()
    args, unknown = commands.parse_known_args(arguments)
    # Like Ctrl-C: what was started on the way is ended on the way out.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if unknown:
            _refuse(args, unknown[0])
            commands.error(f"unrecognized arguments: {' '.join(unknown)}")
        return int(args.run(args) or 0)
    except PliantError as error:
        print(f"pliant: {redaction.redact(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("pliant: interrupted", file=sys.stderr)
        return 130


def command_line() -> Command:
    """Return the parser of all commands."""
    top = Command(
        prog="pliant",
        description="Adaptive serving of transformers: train, profile, judge, serve, replay.",
        epilog="State lies in .pliant/ (PLIANT_HOME) and mlruns/ (MLFLOW_TRACKING_URI) of the working directory.",
    )
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    demo = commands.add_parser("demo", help="show a whole system at work: flow, registry, endpoint, replayed load")
    demo.add_argument("systems", nargs="*", metavar="SYSTEM", help=f"{', '.join(systems.names())} (default: all)")
    text = "leave MLflow, Prefect and the endpoints running until Ctrl-C"
    demo.add_argument("--keep", action="store_true", help=text)
    text = "end with exit status 1 where Pliant is not ahead in a comparison, and name it"
    demo.add_argument("--check", action="store_true", help=text)
    text = "show instead what follows from a change in a running system, and a bad release taken back"
    demo.add_argument("--story", action="store_true", help=text)
    demo.set_defaults(run=_demo)
    releases.commands(commands)
    watch.command(commands)
    journal.command(commands)
    label.command(commands)
    clean.command(commands)
    keys.command(commands)
    sign.command(commands)
    bento.command(commands)
    ui.command(commands)
    for name, (text, add_options, run) in _COMMANDS.items():  # one parser a system, since each has options of its own
        parsers = commands.add_parser(name, help=text).add_subparsers(dest="system", required=True, metavar="SYSTEM")
        for system in systems.listed():
            fill = partial(add_options, system=system)
            command = parsers.add_parser(system.name, help=system.summary, description=text, fill=fill)
            command.set_defaults(run=run, command=name)
        for bench, summary in BENCHES.items() if name == "bench" else ():
            command = parsers.add_parser(bench, help=summary, description=text, fill=partial(_parts, bench=bench))
            command.set_defaults(run=_bench, command=name, system=bench)
    return top


BENCHES = {
    "watch": "alarms, trials of challengers and rollbacks",
    "robust": "schedulers on devices that differ from their profile, against simple baselines",
}
"""Benches of no system, and what each measures."""


def _refuse(args: Namespace, option: str) -> None:
    """Raise `InputError` where other systems have this option of the command and the one that was named has not."""
    if option.startswith("--") and "system" in args and args.__dict__.get("command") in _COMMANDS:
        add_options = _COMMANDS[args.command][1]
        having = []
        for system in systems.listed():
            add_options(parser := ArgumentParser(), system=system)
            if any(option.partition("=")[0] in action.option_strings for action in parser._actions):
                having.append(system.name)
        if having:
            known = f"one of `pliant {args.command} {args.system}`; it is an option of {' and '.join(having)}"
            raise InputError("option", option, known)


def _parts(parser: ArgumentParser, bench: str) -> None:
    """Add the options of a bench, and what each of its parts measures."""
    from pliant.benchmarks.parts import PARTS

    parser.formatter_class = RawDescriptionHelpFormatter
    parts = PARTS.get(bench, {})  # a new system has none yet
    width = max(map(len, parts), default=0)
    parser.epilog = "parts:\n" + "\n".join(f"  {name:<{width}}  {of.measures}" for name, of in parts.items())
    parser.add_argument("--full", action="store_true", help="the long setting of every part, however long it takes")
    text = "run this part alone, of those below; may be repeated (default: all for which ten minutes are enough)"
    parser.add_argument("--part", action="append", default=[], help=text)
    if bench == "robust":
        text = "runs a place of the map (default: 3, with --full 9)"
        parser.add_argument("--seeds", type=int, metavar="N", help=text)


def _profile_options(parser: ArgumentParser, system: systems.System) -> None:
    options.profiling(parser)
    if system.has("cli", "measuring"):
        system.part("cli", "measuring").options(parser)


def _serve_options(parser: ArgumentParser, system: systems.System) -> None:
    from pliant.serving.settings import settings_of

    parser.add_argument("--port", type=int, default=3000, help="port of the address; 0: any free one (default: 3000)")
    options.settings(parser, settings_of(system.name))


def _demo(args: Namespace) -> int:
    for name in args.systems:
        systems.system(name)
    if args.story:
        if args.systems or args.keep or args.check:
            more = "with a SYSTEM, --keep or --check"
            raise InputError("--story", more, "alone: it has a system of its own, and ends by itself")
        from pliant.benchmarks.demo.story import story

        return story()
    from pliant.benchmarks.demo.run import demo

    return demo(args.systems, args.keep, args.check)


def _train(args: Namespace) -> None:
    from pliant.flows import run

    sizes = "The flow takes its own sizes, for good models; those of `pliant demo` are smaller."
    print(sizes, file=sys.stderr, flush=True)
    part = systems.system(args.system).part("cli", "options")
    run.show(getattr(part, "run_flow", options.run_flow)(args))


def _profile(args: Namespace) -> None:
    from pliant.flows import settings

    settings.prepare()
    from pliant.device import describe_device, resolve_device
    from pliant.flows.progress import stage

    device, system = resolve_device(args.device), systems.system(args.system)
    reprofile = system.part("flows", "reprofile").reprofile
    more = system.part("cli", "measuring").arguments(args) if system.has("cli", "measuring") else {}
    with stage(f"latency profile on {describe_device(device)}") as progress:
        reprofile(device, args.threads, progress, args.other_device, **more)


def _serve(args: Namespace) -> int:
    import os

    from pliant.cli.options import service_settings
    from pliant.flows import servers, settings
    from pliant.flows.progress import stage
    from pliant.serving.launch import READY_SECONDS, serve
    from pliant.serving.settings import fields_from_environment, settings_of
    from pliant.serving.workers.devices import devices

    project = settings.prepare()
    port = servers.free_port(args.port) if args.port == 0 else args.port
    kind = settings_of(args.system)
    chosen = fields_from_environment(os.environ, kind) | options.given(args, kind.model_fields)
    running = ui.noted(project)
    traced = running is not None and "trace_share" not in chosen and ui.may_trace(project)
    if running is not None and traced:
        os.environ |= ui.collector(project, args.system, running)
        chosen["trace_share"] = ui.TRACED
    chosen_settings = service_settings(project, kind, **chosen)
    named = ", ".join(devices(chosen_settings))

    def show_start(service: Service) -> None:
        with stage("endpoint"):  # shows how long the service has been starting
            service.wait_until_ready(chosen_settings.wait_for_release + READY_SECONDS)
        where = f"Serving on {service.url} with the device {named} until Ctrl-C."
        traces = (
            f"\nMLflow gets traces of {ui.TRACED:.0%} of the requests (PLIANT_TRACE_SHARE=0: none)." if traced else ""
        )
        print(f"{where}\n{running or ui.HINT}{traces}", file=sys.stderr, flush=True)

    return serve(chosen_settings, project.home, port, show_start)


def _simulate(args: Namespace) -> None:
    if args.seed < 0:
        raise InputError("seed", args.seed, "at least 0")
    if getattr(args, "workers", 1) < 1:
        raise InputError("workers", args.workers, "at least 1")
    systems.system(args.system).part("cli", "simulate").run(args)


def _bench(args: Namespace) -> int:
    from pliant.benchmarks.harness import bench

    seeds: int | None = getattr(args, "seeds", None)
    if seeds is not None and seeds < 1:
        raise InputError("--seeds", seeds, "at least 1")
    return bench(args.system, args.full, args.part, seeds)


_COMMANDS: dict[str, tuple[str, AddOptions, Run]] = {
    "init": ("write a configuration for your model and data, to train with", init.options, init.run),
    "train": (
        "run the flow: train a model, measure it, judge it against the champion, publish it",
        lambda parser, system: system.part("cli", "options").train(parser),
        _train,
    ),
    "profile": (
        "measure the champion on this device and publish its new profile",
        _profile_options,
        _profile,
    ),
    "serve": (
        "serve the champion over HTTP until Ctrl-C",
        _serve_options,
        _serve,
    ),
    "simulate": (
        "simulate a load in virtual time, with the durations that the champion's profile holds",
        lambda parser, system: system.part("cli", "options").simulate(parser),
        _simulate,
    ),
    "plan": (
        "say how many devices a load needs, by simulating it with the champion's profile",
        plan.add_options,
        plan.run,
    ),
    "bench": (
        "run the benchmarks, and say of each target whether it is met",
        lambda parser, system: _parts(parser, system.name),
        _bench,
    ),
}
