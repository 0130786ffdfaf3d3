"""A shop on the log and on Spark, and a `kill -9` of the driver in the middle.

    python examples/demo.py               in a terminal
    python examples/demo.py --headless    without a person: checks its own numbers and exits

Orders are appended all the time, some of them broken. The app of examples/shop.py picks out the
large ones, keeps revenue by city up to date, and measures the pace of the orders by event time.
Half way, its driver is killed and started again. At the end every acknowledged order must be
counted exactly once, in the window in which it happened, every broken one must be among the
rejected, and who asks the view for what the last order did must get it.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from penstock import App, Log, Position, Record, clock
from penstock.runtime.status import AppStatus
from penstock.testing import wait_until

SHOP = Path(__file__).with_name("shop.py")
CITIES = ("Bergen", "Cusco", "Dakar", "Hobart", "Nara", "Quito")
BARS = " ▁▂▃▄▅▆▇█"
AT_ONCE = 50
PAUSE = 0.05
WITHIN = 240.0  # seconds that anything may take, on a machine that has other things to do


class Till:
    """Appends orders until it is told to stop, and keeps its own books."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._number = 0
        self._done = threading.Event()
        self.orders: Counter[str] = Counter()
        self.totals: Counter[str] = Counter()
        self.broken: Counter[str] = Counter()
        self.large = 0
        self.windows: Counter[int] = Counter()  # by their start, in seconds
        self.last: list[Position] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join(WITHIN)

    def _run(self) -> None:
        while not self._done.wait(PAUSE):
            self.last = self._log.append("orders", [self._order() for _ in range(AT_ONCE)])

    def _order(self) -> Record:
        number = self._number
        self._number += 1
        city, amount = CITIES[number * 7 % len(CITIES)], 5 + number * 37 % 200
        now = clock.now_ms()
        at = datetime.fromtimestamp(now / 1_000, UTC).isoformat()
        if number % 500 == 99:
            self.broken["unparsable"] += 1
            return Record(key=city.encode(), value=b'{"number": ')
        if number % 500 == 299:
            self.broken["future"] += 1
            at = "2099-01-01T00:00:00Z"
        else:
            self.orders[city] += 1
            self.totals[city] += amount
            self.large += amount >= 100
            self.windows[now // 2_000 * 2] += 1
        content = {"number": number, "city": city, "amount": amount, "at": at}
        return Record(key=city.encode(), value=json.dumps(content).encode())


class Board:
    """What the app says: the last record of each city, and of each window."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.rows: dict[str, dict[str, int]] = {}
        self.windows: dict[int, int] = {}
        for topic, note in (("revenue", self._city), ("pace", self._window)):
            threading.Thread(target=self._run, args=(topic, note), daemon=True).start()

    def _run(self, topic: str, note: Callable[[dict[str, Any]], None]) -> None:
        wait_until(lambda: topic in self._log.topics(), within=WITHIN)
        starts = dict.fromkeys(range(len(self._log.describe(topic).partitions)), 0)
        with self._log.follow(topic, starts) as records:
            while True:
                for record in records.poll(1.0):
                    if record.value is not None:
                        note(json.loads(record.value))

    def _city(self, row: dict[str, Any]) -> None:
        self.rows[row["city"]] = row

    def _window(self, row: dict[str, Any]) -> None:
        start = datetime.fromisoformat(row["window"]["start"])
        self.windows[round(start.timestamp())] = row["events"]


class Scene:
    """What is on the screen."""

    def __init__(self, console: Console, till: Till, board: Board, folder: Path) -> None:
        self._console = console
        self._till = till
        self._board = board
        self._folder = folder
        self._events: list[Text] = []
        self._began = clock.monotonic()

    def status(self) -> AppStatus | None:
        return AppStatus.read(self._folder / "apps" / "shop")

    def say(self, text: str, style: str = "") -> None:
        line = Text(f"{clock.monotonic() - self._began:5.1f} s  {text}", style=style)
        self._events.append(line)
        if not self._console.is_terminal:
            self._console.print(line, soft_wrap=True)

    def __rich__(self) -> Panel:
        return Panel(
            Group(*self._parts()),
            title="[bold]penstock[/bold] · revenue by city, exactly once",
            width=90,
        )

    def _parts(self) -> Iterator[RenderableType]:
        for part in (self._revenue(), self._pace(), self._nodes()):
            yield part
            yield Text()
        yield from self._events[-9:]

    def _revenue(self) -> Table:
        table = Table(expand=True, box=None, padding=(0, 1))
        for name in ("city", "sold", "counted", "revenue", "largest"):
            table.add_column(name, justify="left" if name == "city" else "right")
        for city in CITIES:
            row = self._board.rows.get(city, {})
            sold, counted = self._till.orders[city], row.get("orders", 0)
            table.add_row(
                city,
                f"{sold:,}",
                Text(f"{counted:,}", style="green" if counted == sold else "yellow"),
                f"{row.get('total', 0):,}",
                f"{row.get('largest', 0):,}",
            )
        return table

    def _pace(self) -> Text:
        """The orders of each window as a row of bars."""
        windows = dict(self._board.windows)
        counts = [windows.get(start, 0) for start in _starts(windows)][-60:]
        highest = max(counts, default=0)
        bars = "".join(BARS[count * (len(BARS) - 1) // max(highest, 1)] for count in counts)
        return Text.assemble(
            " orders every 2 s, by event time  ", (bars or "-", "cyan"), f"  up to {highest:,}"
        )

    def _nodes(self) -> Table:
        table = Table(expand=True, box=None, padding=(0, 1))
        for name in ("node", "state", "batch", "read", "rejected", "lag"):
            table.add_column(name, justify="left" if name in ("node", "state") else "right")
        status = self.status()
        for node in status.nodes if status else ():
            rejected = node.rejected.total()
            table.add_row(
                node.name,
                Text(node.state, style="red" if node.state == "failed" else "cyan"),
                f"{node.batch:,}",
                f"{node.read:,}",
                Text(f"{rejected:,}", style="magenta" if rejected else ""),
                f"{node.lag:,}",
            )
        return table


class Driver:
    """The process that runs the app: Spark's driver."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = (folder / "driver.log").open("ab")
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(SHOP)],
            env=os.environ | {"SHOP_DATA": str(self._folder / "data")},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(WITHIN)
        self._log.close()


def play(driver: Driver, till: Till, board: Board, scene: Scene) -> None:
    scene.say("orders are coming in; Spark starts")
    till.start()
    enough(lambda: len(board.rows) == len(CITIES), "first results")
    scene.say("the first results: revenue follows the orders", "bold")
    before = sum(row["orders"] for row in board.rows.values())
    enough(lambda: counted(board) > before + 2_000, "a few batches")
    driver.kill()
    scene.say(f"kill -9 {driver.pid}: the driver is dead in the middle of a batch", "bold red")
    stopped = counted(board)
    scene.say("orders keep coming in while it is away")
    driver.start()
    enough(lambda: counted(board) > stopped + 500, "the app to go on")
    scene.say("started again: it goes on where its last batch ended", "bold green")
    enough(lambda: counted(board) > stopped + 4_000, "a few more batches")
    till.stop()
    scene.say("the till is closed; the app works off the rest")
    sold = till.orders.total()
    enough(lambda: counted(board) >= sold, "all orders to be counted")


def asked(folder: Path, till: Till, scene: Scene) -> bool:
    """Reads the views as somebody else would, who knows only where the last orders stand."""
    views = App("shop", data=folder).views
    revenue, best = views["revenue"], views["best"]
    rows = {city: revenue.get(city, after=till.last, timeout=f"{WITHIN:g}s") for city in CITIES}
    views.wait(["best"], till.last, f"{WITHIN:g}s")
    first = sorted(best.rows(), key=lambda row: -row["total"])
    said = " · ".join(f"{row['city']} {row['total']:,}" for row in first)
    scene.say(f"the view, after order {till.last[-1]}: {said}", "bold")
    is_right = all(
        row is not None and (row["orders"], row["total"]) == (till.orders[city], till.totals[city])
        for city, row in rows.items()
    )
    return is_right and [row["total"] for row in first] == sorted(till.totals.values())[:-4:-1]


def _starts(windows: dict[int, int]) -> range:
    return range(min(windows), max(windows) + 2, 2) if windows else range(0)


def counted(board: Board) -> int:
    return sum(row["orders"] for row in list(board.rows.values()))


def enough(condition: Callable[[], bool], what: str) -> None:
    wait_until(condition, within=WITHIN, what=what)


def verdict(log: Log, till: Till, board: Board, scene: Scene) -> bool:
    """Compares the app's results with the till's own books."""

    def settled() -> bool:
        status = scene.status()
        return status is not None and all(
            node.read + node.lag > 0 and node.lag == 0 for node in status.nodes
        )

    enough(settled, "the nodes to have read everything")
    wrong = [
        city
        for city in CITIES
        if (board.rows[city]["orders"], board.rows[city]["total"])
        != (till.orders[city], till.totals[city])
    ]
    large = sum(
        1
        for partition, bounds in enumerate(log.describe("large").partitions)
        for record in log.read("large", partition, bounds.start)
        if record.value is not None
    )
    status = scene.status()
    (node,) = [each for each in status.nodes if each.name == "revenue"] if status else []
    rejected = node.rejected
    scene.say(f"sold {till.orders.total():,} · counted {counted(board):,}", "bold")
    scene.say(f"large orders {till.large:,} · in the derived topic {large:,}", "bold")
    misplaced = [start for start, n in board.windows.items() if till.windows[start] != n]
    scene.say(
        f"windows of 2 s given out {len(board.windows)} · with another count than the till's "
        f"{len(misplaced)}",
        "bold",
    )
    scene.say(
        f"broken {till.broken.total()} · rejected "
        + " · ".join(f"{count} {reason}" for reason, count in sorted(rejected.items())),
        "bold",
    )
    is_right = not wrong and large == till.large and rejected == till.broken
    return is_right and bool(board.windows) and not misplaced


@click.command()
@click.option("--headless", is_flag=True, help="No live picture; plain lines, for scripts.")
def main(headless: bool) -> None:
    console = Console(force_terminal=False if headless else None)
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as name:
        folder = Path(name)
        driver = Driver(folder)
        try:
            with Log.join(folder / "data") as log:
                if "orders" not in log.topics():
                    log.create("orders", partitions=4)
                till, board = Till(log), Board(log)
                scene = Scene(console, till, board, folder / "data")
                with Live(scene, console=console, refresh_per_second=8, transient=headless):
                    play(driver, till, board, scene)
                    good = verdict(log, till, board, scene)
                    good &= asked(folder / "data", till, scene)
                    scene.say(
                        "every order was counted exactly once" if good else "something is wrong",
                        "bold green" if good else "bold red",
                    )
        except TimeoutError:
            console.print((folder / "driver.log").read_text()[-4_000:])
            raise
        finally:
            driver.close()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
