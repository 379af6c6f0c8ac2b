"""`pliant demo`: flow, registry, endpoint, replayed load, end to end, with a table and a picture at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.tokens_endpoint import address, live_bundle, serving, test_examples
from benchmarks.tokens_figures import replay_figure
from benchmarks.tokens_replay import ADAPTIVE, HEADINGS, ReplayConfig, Replayed, compare, rows
from flows import servers, settings
from flows.settings import Settings
from flows.tokens_publish import open_registry
from flows.tokens_run import run_connected, show, with_prefect
from pliant.progress import Progress


def demo(keep: bool) -> int:
    """Run the main job. With `keep`, everything stays up until interrupted."""
    start, told, console = time.monotonic(), settings.read(), Console()
    with with_prefect(told, 4200 if keep else 0) as prefect:
        console.rule("1  Flow: train, profile, judge, publish")
        show(run_connected(None, {}))
        console.rule("2  Endpoint: the same bursty load with gamma 0 and with adaptation")
        replayed = measure(ReplayConfig())
        picture = record(told, replayed)
        console.rule(f"3  Results after {time.monotonic() - start:.0f} s")
        print_table(console, replayed)
        _point_on(console, picture)
        if keep:
            _keep(console, told, prefect)
    return 0


def measure(config: ReplayConfig) -> Replayed:
    """The comparison over HTTP, with progress on the terminal."""
    # Imported late: Prefect reads its settings at import, and `with_prefect` prepares them.
    from flows.progress import stage

    @contextmanager
    def shown(name: str) -> Iterator[Progress]:
        with stage(name) as progress:
            yield progress

    return compare(address, test_examples(live_bundle()), config, shown)


def record(told: Settings, replayed: Replayed) -> Path:
    """The figure as PNG and everything measured, in MLflow and beside the state."""
    figure = replay_figure(replayed.load, replayed.capacity, replayed.replies)
    path = told.home / "replay.png"
    figure.savefig(path, dpi=110)
    with open_registry(told).run("tokens replay", {"kind": "replay"}) as run:
        run.params({"capacity": replayed.capacity, "requests": len(replayed.load.requests)})
        halves = {"all": None, "quiet": False, "loud": True}
        run.metrics({f"utility_ratio.{half}": replayed.ratio(loud) for half, loud in halves.items()})
        run.metrics(
            {f"{n.replace(' ', '_')}.{k}": v for n in replayed.replies for k, v in _figures(replayed, n).items()}
        )
        run.document("replay", replayed.plain())
        run.figure("replay", figure)
    return path


def _figures(replayed: Replayed, policy: str) -> dict[str, float]:
    report = replayed.report(policy)
    return {name: getattr(report, name) for name in ("utility", "attainment", "accuracy", "p50", "p99")}


def print_table(console: Console, replayed: Replayed) -> None:
    console.print(
        f"The endpoint serves {replayed.capacity:.0f} requests/s at gamma 0; the load runs from half to twice that, "
        f"{len(replayed.load.requests)} requests."
    )
    table = Table(*HEADINGS)
    for row in rows(replayed):
        table.add_row(*row, style="bold" if row[1] == ADAPTIVE else "")
    console.print(table)
    ratios = f"{replayed.ratio(True):.2f}x on the loud half, {replayed.ratio(False):.2f}x on the quiet half"
    console.print(f"Adaptation earns [bold]{ratios}[/bold] of what gamma 0 earns.")


def _point_on(console: Console, picture: Path) -> None:
    console.print(f"\nThe picture of this run: {picture}")
    console.print("Look further:  pliant demo --keep      MLflow, Prefect and the endpoint, left running")
    console.print("               pliant serve tokens     the endpoint alone; its page is /v1/docs")
    console.print("               pliant simulate tokens  the same load in virtual time")
    console.print("               pliant bench tokens     every bar, measured")


def _keep(console: Console, told: Settings, prefect: str) -> None:
    with ExitStack() as stack:
        mlflow = stack.enter_context(servers.mlflow_server(told, servers.free_port(5000)))
        service = stack.enter_context(serving(ADAPTIVE, 3000))
        console.rule("4  Left running until Ctrl-C")
        console.print(f"MLflow    {mlflow}\nPrefect   {prefect}\nEndpoint  {service.url}/v1/docs")
        try:
            service.process.wait()
        except KeyboardInterrupt:
            console.print("Stopping.")
