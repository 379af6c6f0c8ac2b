"""The stack for people to look at: it says where everything is, and runs until Ctrl-C."""

from __future__ import annotations

import signal
from contextlib import ExitStack

from rich.console import Console

from benchmarks.harness import Skipped
from flows import settings
from qa.stack.monitoring import prometheus
from qa.stack.proxy import proxy
from qa.stack.stack import SYSTEMS, stack
from qa.stack.whole import TRAINED, make_keys


def look() -> int:
    """Start everything, print the addresses, and wait. What was trained and recorded goes with the stack's Postgres."""
    home, console = settings.read().home / "stack", Console()
    with ExitStack() as running:
        client, monitor = make_keys(home / "keys.json")
        console.print("Postgres, MLflow, Prefect and a worker start ...")
        given = running.enter_context(stack(home, home / "keys.json"))
        console.print(f"MLflow is at {given.mlflow}, Prefect at {given.prefect.url}", markup=False)
        scheduled = {system: given.schedule(system) for system in SYSTEMS}
        for system in SYSTEMS:
            console.print(f"the flow of {system} trains its first release, by its schedule ...")
            given.await_scheduled(system, scheduled[system], TRAINED)
            address = running.enter_context(given.endpoint(system))
            console.print(f"{system} is at {address}", markup=False)
        targets = {system: address.removeprefix("http://") for system, address in given.services.items()}
        try:
            door = running.enter_context(proxy(home / "proxy", targets, given.certificate))
            path = given.certificate.path
            console.print(f"the proxy is at {door.url} (curl --cacert {path} ...)", markup=False)
            server = running.enter_context(prometheus(given.project, home / "prometheus", targets, monitor))
            console.print(f"Prometheus is at {server.url}", markup=False)
        except Skipped as error:
            console.print(str(error), markup=False)
        console.print(f"A client sends the header: authorization: Bearer {client}", markup=False)
        console.print("Ctrl-C ends it all.")
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    return 0
