"""`penstock status`: how the nodes of an app are doing."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.cli.building import building_lines
from penstock.cli.chosen import DATA, statuses
from penstock.cli.display import count, left, right, screen, show, table
from penstock.cli.interrupts import Interrupts
from penstock.clock import now_ms, sleep
from penstock.runtime.status import AppStatus, InputStatus, Life, NodeStatus
from penstock.runtime.why import moment, roughly

_EVERY = 0.5  # seconds
_STYLES = {
    "running": "green",
    "waiting": "green",
    "building": "yellow",
    "starting": "yellow",
    "failed": "red",
}


@click.command()
@click.argument("app", required=False)
@DATA
@click.option("--watch", is_flag=True, help="Keep it up to date until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each app.")
def command(app: str | None, data: Path, watch: bool, as_json: bool) -> None:
    """Show each node of APP, or of every app there is: its rate, its lag, its clock.

    The lag is in records, the clock is the event time before which all has been seen, in UTC. Ends
    with status 1 when a node is failing, when too many rows of a stream are rejected, or when an
    app has gone without having been stopped.

    \b
    Examples:
      penstock status
      penstock status shop --watch
      penstock status --json | jq '.nodes[].lag'
    """
    if watch and (as_json or not sys.stdout.isatty()):
        raise click.UsageError("--watch is for people, on a terminal.")
    if watch:
        _watch(app, data)
        return
    told = statuses(data, app)
    if as_json:
        for status in told:
            click.echo(json.dumps(as_object(status)))
    else:
        show(_all(told))
    if any(is_bad(status, status.life()) for status in told):
        click.get_current_context().exit(1)


def _watch(app: str | None, data: Path) -> None:
    with (
        Interrupts(),
        Live(_all(statuses(data, app)), console=screen(), auto_refresh=False) as live,
    ):
        try:
            while True:
                sleep(_EVERY)
                live.update(_all(statuses(data, app)), refresh=True)
        except KeyboardInterrupt:
            pass  # the usual end of it


def is_bad(status: AppStatus, life: Life) -> bool:
    is_alarmed = life == "running" and bool(status.alarms)
    is_behind = life == "running" and bool(status.views_error)
    is_failing = bool(status.failing or status.error)
    return life in ("gone", "silent") or is_alarmed or is_behind or is_failing


def as_object(status: AppStatus) -> dict[str, Any]:
    told = asdict(status) | {"life": status.life()}
    for node, content in zip(status.nodes, told["nodes"], strict=True):
        content |= {"lag": node.lag, "clock": node.clock}
        for each, inner in zip(node.inputs, content["inputs"], strict=True):
            del inner["source"]
            inner["lag"] = each.lag
    return told


def _all(told: Sequence[AppStatus]) -> RenderableType:
    now = now_ms()
    parts: list[RenderableType] = []
    for status in told:
        parts += [overview(status, status.life(), now), Text()]
    return Group(*parts[:-1])


def overview(status: AppStatus, life: Life, now: int) -> RenderableType:
    """What there is to see of an app: a line, a table of its nodes, and what is wrong."""
    wrong = _wrong(status, life, now)
    served = life == "running" and status.address
    where = [Text(f"its views are at {status.address}/views", style="dim")] if served else []
    bars = building_lines(status) if life == "running" else []
    building = [Text(), *bars] if bars else []
    nodes = _nodes(status, life)
    return Group(_headline(status, life, now), *where, Text(), nodes, *building, *wrong)


def _headline(status: AppStatus, life: Life, now: int) -> Text:
    heard = roughly(now - status.written_ms)
    match life:
        case "running" if status.stopping:
            said, style = "stopping", "yellow"
        case "running":
            said = f"running for {roughly(now - status.started_ms)}, process {status.pid}"
            style = "green"
        case "stopped":
            is_old = now - status.written_ms >= 1_000
            said = f"stopped {heard} ago" if is_old else "stopped"
            style = "red" if status.error else "yellow"
        case "gone":
            said = f"gone: its process {status.pid} is no more, last heard of {heard} ago"
            style = "red"
        case "silent":
            said = f"silent: its process {status.pid} is there, and has told nothing for {heard}"
            style = "red"
    return Text.assemble((status.app, "bold"), ": ", (said, style))


def _nodes(status: AppStatus, life: Life) -> Table:
    nodes = table(
        left("node"),
        left("state"),
        right("rows"),
        right("rows/s"),
        right("lag"),
        left("clock"),
        right("rejected"),
    )
    for node in status.nodes:
        state = node.state
        if life in ("stopped", "gone") and state != "failed":
            state = "stopped"
        said = f"building {node.progress}%" if state == "building" else state
        rejected = node.rejected.total()
        is_known = node.state != "starting" or any(each.end for each in node.inputs)
        nodes.add_row(
            Text(node.name),
            Text(said, style=_STYLES.get(state, "dim")),
            count(node.read) if is_known else "-",
            count(round(node.rows_per_second)) if life == "running" else "-",
            Text(count(node.lag) if is_known else "-", style="yellow" if node.lag else ""),
            "-" if node.clock is None else moment(node.clock),
            Text(count(rejected), style="yellow" if rejected else ""),
        )
    return nodes


def _wrong(status: AppStatus, life: Life, now: int) -> list[RenderableType]:
    lines: list[RenderableType] = []
    if status.error:
        lines.append(Text.assemble(("stopped by an error: ", "red"), status.error))
    if status.views_error and life == "running":
        said = "its views are not brought up to date: "
        lines.append(Text.assemble((said, "red"), status.views_error))
    lines += [_failure(node, now) for node in status.failing]
    if life == "running":
        lines += [_alarm(node, told) for node, told in status.alarms]
    return [Text(), *lines] if lines else []


def _failure(node: NodeStatus, now: int) -> Text:
    when = f"failed {roughly(now - node.since_ms)} ago" if node.state == "failed" else "had failed"
    said = f"{node.name} {when}: "
    return Text.assemble((said, "red"), node.error, (f"\n  hint: penstock why {node.name}", "dim"))


def _alarm(node: NodeStatus, told: InputStatus) -> Text:
    return Text.assemble((told.alarm, "red"), (f"\n  hint: penstock why {node.name}", "dim"))
