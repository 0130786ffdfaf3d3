"""A log, a producer, two consumer groups, and a `kill -9` in the middle.

    python examples/log_demo.py               in a terminal
    python examples/log_demo.py --headless    without a person: checks its own numbers and exits

Orders are appended all the time while two groups read them, each for itself. Half way, the log
server is killed and started again on the same folder. At the end every acknowledged order must be
in the log exactly once and must have reached both groups.
"""

import json
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock import Log, Record, clock
from penstock.testing import LogServerProcess, wait_until

ORDERS = 3_000
AT_ONCE = 15
PAUSE = 0.03
PARTITIONS = 4
GROUPS = ("billing", "shipping")
CITIES = ("Bergen", "Cusco", "Dakar", "Hobart", "Nara", "Quito")


class Shop:
    """Appends orders until they are all acknowledged."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.acknowledged: list[int] = []

    def run(self) -> None:
        with Log.connect(self.address) as log:
            for first in range(0, ORDERS, AT_ONCE):
                numbers = range(first, min(first + AT_ONCE, ORDERS))
                log.append("orders", [order(number) for number in numbers])
                self.acknowledged.extend(numbers)
                clock.sleep(PAUSE)


def order(number: int) -> Record:
    city = CITIES[number % len(CITIES)]
    content = {"order": number, "city": city, "amount": 5 + number * 37 % 200}
    return Record(key=city.encode(), value=json.dumps(content).encode())


class Department:
    """A member of a group that takes note of every order it is given."""

    def __init__(self, address: str, group: str) -> None:
        self.address = address
        self.group = group
        self.seen: Counter[int] = Counter()
        self.latest = ""
        self.done = threading.Event()

    def run(self) -> None:
        with Log.connect(self.address) as log, log.subscribe(self.group, ["orders"]) as records:
            while not self.done.is_set():
                for record in records.poll(0.1):
                    content = json.loads(record.value or b"{}")
                    self.seen[content["order"]] += 1
                    self.latest = f"{record.position}  {content['city']}, {content['amount']} EUR"
                records.commit()


class Scene:
    """What is on the screen."""

    def __init__(self, console: Console, shop: Shop, departments: list[Department]) -> None:
        self.console = console
        self.shop = shop
        self.departments = departments
        self.events: list[Text] = []
        self._began = clock.monotonic()

    def say(self, text: str, style: str = "") -> None:
        line = Text(f"{clock.monotonic() - self._began:5.1f} s  {text}", style=style)
        self.events.append(line)
        if not self.console.is_terminal:
            self.console.print(line, soft_wrap=True)

    def __rich__(self) -> Panel:
        table = Table(expand=True, box=None, padding=(0, 1))
        table.add_column("", no_wrap=True)
        table.add_column("orders", justify="right", width=6)
        table.add_column("", width=18)
        table.add_column("latest", no_wrap=True, ratio=1)
        rows = [("acknowledged", len(self.shop.acknowledged), "", "green")]
        rows += [(f"group {d.group}", len(d.seen), d.latest, "cyan") for d in self.departments]
        for name, count, latest, colour in rows:
            bar = ProgressBar(ORDERS, count, width=18, complete_style=colour)
            table.add_row(name, f"{count:,}", bar, Text(latest, style="dim"))
        return Panel(
            Group(table, Text(), *self.events[-9:]),
            title="[bold]penstock[/bold] · the log",
            width=78,
        )


def start(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def play(server: LogServerProcess, scene: Scene) -> None:
    shop, departments = scene.shop, scene.departments
    with Log.connect(server.address) as log:
        log.create("orders", partitions=PARTITIONS)
    scene.say(f"topic orders, {PARTITIONS} partitions, synced to disk before every answer")
    for work in (shop.run, *(department.run for department in departments)):
        start(work)
    scene.say("a producer appends; billing and shipping read, each for itself")
    enough(lambda: len(shop.acknowledged) >= ORDERS // 2, "half of the orders")
    server.kill()
    scene.say(f"kill -9 {server.pid}: the server is dead in the middle of it all", "bold red")
    before = len(shop.acknowledged)
    server.restart()
    scene.say(f"started again in {server.startup_seconds:.2f} s, on the same folder", "bold green")
    enough(lambda: len(shop.acknowledged) > before, "the producer to go on")
    scene.say("producer and groups go on by themselves")
    enough(lambda: len(shop.acknowledged) == ORDERS, "all orders")
    enough(lambda: all(len(d.seen) == ORDERS for d in departments), "both groups to read them all")
    for department in departments:
        department.done.set()


def enough(condition: Callable[[], bool], what: str) -> None:
    wait_until(condition, within=60, what=what)


def verdict(server: LogServerProcess, scene: Scene) -> bool:
    """Reads the log from the start and compares."""
    stored: Counter[int] = Counter()
    with Log.connect(server.address) as log:
        for partition in range(PARTITIONS):
            for record in log.read("orders", partition, 0):
                stored[json.loads(record.value or b"{}")["order"]] += 1
    acknowledged = set(scene.shop.acknowledged)
    lost = acknowledged - stored.keys()
    twice = [number for number, count in stored.items() if count > 1]
    unread = {d.group: len(acknowledged - d.seen.keys()) for d in scene.departments}
    scene.say(
        f"acknowledged {len(acknowledged):,} · stored {stored.total():,} · lost {len(lost)} · "
        f"twice {len(twice)}",
        "bold",
    )
    scene.say(" · ".join(f"{group} missed {count}" for group, count in unread.items()), "bold")
    return len(acknowledged) == ORDERS and not lost and not twice and not any(unread.values())


@click.command()
@click.option("--headless", is_flag=True, help="No live picture; plain lines, for scripts.")
def main(headless: bool) -> None:
    console = Console(force_terminal=False if headless else None)
    with (
        tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder,
        LogServerProcess(Path(folder)) as server,
    ):
        shop = Shop(server.address)
        scene = Scene(console, shop, [Department(server.address, group) for group in GROUPS])
        scene.say(f"log server at {server.address}, up in {server.startup_seconds:.2f} s")
        with Live(scene, console=console, refresh_per_second=12, transient=headless):
            play(server, scene)
            good = verdict(server, scene)
            scene.say("nothing was lost" if good else "something is wrong", "bold green")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
