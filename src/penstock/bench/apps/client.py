"""Who writes to a measured app and reads its last view: a program that runs with the version of
penstock that the app runs with, and uses nothing of it but what users do.

Its argument is a job as JSON: `{"data": folder, "app": name, "stream": topic, "views": names,
"tables": {topic: rows}}`. A line of standard input is a request, `{"do": name, ...}`, and gets a
line as answer: `{"answer": ...}` or `{"error": text}`. Times are those of the monotonic clock,
which all processes of a machine share.
"""

import json
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.clock import monotonic, sleep
from penstock.errors import PenstockError

CUSTOMERS, SHOPS, ITEMS = 1_000, 100, 200
LIVE_CUSTOMERS, LIVE_AMOUNT = 10, 1_000.0  # above what any view leaves out
# Event time follows the id, so that no order is late.
START_MS, APART_MS = 1_700_000_000_000, 10

_BETWEEN = (0.2, 0.3)  # seconds from a result to the next order, never in step with a trigger
_PAUSE = 0.002
_REST = 3.0  # times what a look took: looking takes a quarter of a core at most
_LOOK_FOR_LOG = 0.02
_A_RESULT_WITHIN = 60.0


class Client:
    def __init__(self, job: dict[str, Any]) -> None:
        self._data = Path(job["data"])
        self._views = ps.App(job["app"], data=self._data).views
        self._names: list[str] = job["views"]
        self._stream: str = job["stream"]
        self._tables: dict[str, list[dict[str, Any]]] = job["tables"]
        self._view: Any = None
        self._log: ps.Log | None = None
        self._number = 0

    def version(self) -> str:
        """The file that this version of penstock is in."""
        return str(ps.__file__)

    def first(self, within: float) -> float:
        """When an order is seen in the last view that is appended as soon as the app is there to
        take it."""
        deadline = monotonic() + within
        log = self._log = self._connected(deadline)
        topics = {self._stream, *self._tables}
        _wait(lambda: topics <= set(log.topics()), deadline, "the topics")
        for topic, rows in self._tables.items():
            log.append(topic, [_record(row, row["id"]) for row in rows])
        return self.next(deadline - monotonic())

    def next(self, within: float, number: int | None = None) -> float:
        """When an order is seen that is appended now; `number` is its id, if it is not to be the
        one after the last."""
        self._number = self._number + 1 if number is None else number
        assert self._log is not None
        order = live_order(self._number)
        self._log.append(self._stream, [_record(order, str(order["customer"]))])
        return self._seen(order, within)

    def latencies(self, seconds: float) -> list[float]:
        """Milliseconds from append to visible, of one order after the other."""
        found = []
        end = monotonic() + seconds
        while monotonic() < end:
            sleep(random.uniform(*_BETWEEN))
            began = monotonic()
            found.append((self.next(_A_RESULT_WITHIN) - began) * 1_000)
        return found

    def reached(self, ends: Sequence[int], within: float) -> float:
        """When every view has seen all orders before these offsets of the partitions."""
        last = [
            ps.Position(self._stream, partition, end - 1)
            for partition, end in enumerate(ends)
            if end
        ]
        self._views.wait(self._names[::-1], last, f"{round(within)}s")
        return monotonic()

    def rows(self) -> dict[str, tuple[float, int]]:
        """Of each customer in the last view, total and last."""
        rows = self._views[self._names[-1]].rows()
        return {row["customer"]: (row["total"], row["last"]) for row in rows}

    def ends(self) -> list[int]:
        assert self._log is not None
        return [bounds.end for bounds in self._log.describe(self._stream).partitions]

    def _connected(self, deadline: float) -> ps.Log:
        """To the server that the app has started; joining the folder would start another one."""
        address = _wait(self._address, deadline, "a server of the log")
        return ps.Log.connect(address)

    def _address(self) -> str:
        try:
            return json.loads((self._data / "lock").read_text()).get("address") or ""
        except (OSError, ValueError):
            return ""

    def _seen(self, order: dict[str, Any], within: float) -> float:
        deadline = monotonic() + within
        while True:
            began = monotonic()
            is_there = self._shows(order)
            now = monotonic()
            if is_there:
                return now
            if now > deadline:
                raise TimeoutError(f"order {order['id']} was not seen within {within:.0f} s")
            sleep(max(_PAUSE, _REST * (now - began)))

    def _shows(self, order: dict[str, Any]) -> bool:
        try:
            if self._view is None:
                self._view = self._views[self._names[-1]]
            row = self._view.get(order["customer"])
        except PenstockError:  # it is not kept yet
            return False
        return bool(row) and row["last"] >= order["id"]


def live_order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "customer": f"c{number % LIVE_CUSTOMERS}",
        "shop": f"shop {number % SHOPS}",
        "item": f"item {number % ITEMS}",
        "amount": LIVE_AMOUNT,
        "at": START_MS + number * APART_MS,
    }


def _record(row: dict[str, Any], key: str) -> ps.Record:
    return ps.Record(key=key.encode(), value=json.dumps(row).encode())


def _wait(condition: Callable[[], Any], deadline: float, what: str) -> Any:
    while not (answer := condition()):
        if monotonic() > deadline:
            raise TimeoutError(f"there was no {what}")
        sleep(_LOOK_FOR_LOG)
    return answer


def main(job: str) -> None:
    client = Client(json.loads(job))
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"answer": getattr(client, request.pop("do"))(**request)}
        except (PenstockError, TimeoutError) as error:
            answer = {"error": str(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
