"""The log and Apache Kafka under the same load on the same machine, taking turns."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from penstock.bench.client import MEGABYTE
from penstock.bench.contenders import CONTENDERS, Server, peak_bytes
from penstock.bench.figures import AFTER_LOAD, AFTER_START, PEAK, START_UP, Figures, Row
from penstock.bench.machine import facts
from penstock.bench.report import Report
from penstock.bench.steps import Steps
from penstock.bench.workloads import FULL, QUICK, WORKLOADS
from penstock.clock import instant_text, now_ms


def run(*, repeats: int, quick: bool, output: Path) -> None:
    """Measures, prints a table and writes a report to `output` as Markdown.

    A quick run shows that everything works; its figures mean nothing. Raises LogUnreachable when
    a server, or what it needs, is missing.
    """
    machine, date = facts(), instant_text(now_ms())
    command = f"penstock bench log --repeats {repeats}{' --quick' if quick else ''}"
    report = Report(measure(repeats, quick=quick), command, date, machine, quick)
    report.publish(output)


def measure(repeats: int, *, quick: bool) -> Figures:
    """One value for each row, contender and repeat."""
    amount, warm_up = (QUICK, ()) if quick else (FULL, WORKLOADS)
    figures, discarded = Figures(), Figures()
    servers: dict[str, Server] = {}
    total = len(CONTENDERS) * (len(warm_up) + repeats * (1 + len(WORKLOADS)))
    with Steps(total) as steps, ExitStack() as running:

        def step(
            what: str, name: str, take: Callable[[], dict[Row, float]], into: Figures = figures
        ) -> None:
            steps.begin(f"{what}, {name}")
            measured = take()
            into.add(name, measured)
            steps.end(
                ", ".join(f"{row.what} {row.short(v)} {row.unit}" for row, v in measured.items())
            )

        def start(name: str) -> dict[Row, float]:
            servers[name] = running.enter_context(CONTENDERS[name]())
            return _as_started(servers[name])

        for name in CONTENDERS:
            step(f"1 of {repeats}: start-up", name, partial(start, name))
        for workload in warm_up:
            for name in CONTENDERS:
                take = partial(workload.measure, servers[name].address, amount)
                step(f"warm-up: {workload.name}", name, take, into=discarded)
        for repeat in range(repeats):
            turns, which = in_turn(repeat), f"{repeat + 1} of {repeats}"
            if repeat:  # the first start was that of the servers themselves
                for name in turns:
                    step(f"{which}: start-up", name, partial(_start_afresh, name))
            for workload in WORKLOADS:
                for name in turns:
                    take = partial(workload.measure, servers[name].address, amount)
                    step(f"{which}: {workload.name}", name, take)
            for name, server in servers.items():
                figures.add(name, _after_load(server))
    return figures


def in_turn(repeat: int) -> list[str]:
    """The contenders in the order of this repeat, in which another one is first."""
    names = list(CONTENDERS)
    first = repeat % len(names)
    return names[first:] + names[:first]


def _start_afresh(name: str) -> dict[Row, float]:
    with CONTENDERS[name]() as server:
        return _as_started(server)


def _as_started(server: Server) -> dict[Row, float]:
    return {
        START_UP: server.startup_seconds,
        AFTER_START: server.resident_bytes / MEGABYTE,
    }


def _after_load(server: Server) -> dict[Row, float]:
    return {
        AFTER_LOAD: server.resident_bytes / MEGABYTE,
        PEAK: peak_bytes(server) / MEGABYTE,
    }
