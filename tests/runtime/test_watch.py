import math
import threading
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import cast

import pytest

from penstock import clock
from penstock.errors import NodeChanged, TopicNotFound
from penstock.events.schema import parse_schema
from penstock.runtime.engine import BuiltQuery, Engine
from penstock.runtime.installation import Installation
from penstock.runtime.status import NodeStatus
from penstock.runtime.telling import Teller
from penstock.runtime.watch import Watch, cause_of
from penstock.streams.source.spec import SourceSpec

STREAM_FAILED = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted.
Traceback (most recent call last):
  File "app.py", line 7, in through
    raise RuntimeError("the scale is out of order")
RuntimeError: the scale is out of order
 SQLSTATE: XXKST"""

OURS = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: latestOffset failed
Traceback (most recent call last):
  File "topic.py", line 9, in open_topic
penstock.errors.TopicNotFound: there is no topic 'clicks'
  hint: create it first
 SQLSTATE: XXKST"""

FOREIGN = STREAM_FAILED.replace("\nRuntimeError: the scale", "\nlib.ArrowInvalid: the scale")

NOT_THEIRS = STREAM_FAILED.replace("app.py", "/opt/lib/site-packages/pyspark/worker.py")

THROUGH_A_LIBRARY = """Job aborted.
Traceback (most recent call last):
  File "/opt/lib/site-packages/pyspark/worker.py", line 9, in main
    process()
  File "/srv/shop/app.py", line 3, in named
    return frame["a"]
           ~~~~~^^^^^
  File "/opt/lib/site-packages/pandas/core/frame.py", line 4102, in __getitem__
    indexer = self.columns.get_loc(key)
KeyError: 'a'
"""

JAVA = """An error occurred while calling o2051.start.
: org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] no such source
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.dataSourceNotFoundError(Q.scala:1)"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            Exception(STREAM_FAILED),
            "RuntimeError: the scale is out of order (app.py, line 7, in through)",
        ),
        (
            Exception(FOREIGN),
            "lib.ArrowInvalid: the scale is out of order (app.py, line 7, in through)",
        ),
        (Exception(NOT_THEIRS), "RuntimeError: the scale is out of order"),
        (Exception(THROUGH_A_LIBRARY), "KeyError: 'a' (/srv/shop/app.py, line 3, in named)"),
        (Exception(OURS), "TopicNotFound: there is no topic 'clicks'\n  hint: create it first"),
        (
            Exception(JAVA),
            "org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] no such source",
        ),
        (
            NodeChanged("it is another", hint="reset it"),
            "NodeChanged: it is another\n  hint: reset it",
        ),
        (Exception("it broke\nbadly"), "it broke"),
        (TopicNotFound(""), "TopicNotFound: "),
        (ValueError(), "ValueError"),
    ],
)
def test_what_happened_in_one_sentence(error: BaseException, said: str) -> None:
    assert cause_of(error) == said


class Sleeping:
    """The engine of a query that has nothing to do, and its news."""

    def __init__(self, *, due_ms: int | None = None, owes_promises: bool = False) -> None:
        self.news = self
        self.steps = self.end = 0
        self.sources: list[SourceSpec] = []
        self.due_ms = due_ms
        self.owes_promises = owes_promises
        self.looks = self.planned = 0
        self.waits: list[float] = []
        self.when_waiting: Callable[[], None] = lambda: None
        self._woken = threading.Event()

    def step(self, *, flush: bool = False) -> bool:
        self.planned += 1
        self.owes_promises &= not flush
        return False

    def has_news(self) -> bool:
        self.looks += 1
        return False

    def ends(self, source: str) -> dict[int, int]:
        return {0: self.end}

    def next_idle(self) -> int | None:
        return self.due_ms

    def wait(self, seconds: float, *, look_every: float) -> bool:
        self.waits.append(seconds)
        self.when_waiting()
        return self._woken.wait(60.0)

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        pass


def watched(engine: Sleeping) -> Watch:
    query = SimpleNamespace(name="main", nodes=[], refused={})
    installation = SimpleNamespace(open_engine=lambda query: engine)
    return Watch(cast(Installation, installation), cast(BuiltQuery, query))


def run_until(engine: Sleeping, waits: int) -> None:
    """Runs a query that sleeps so many times."""
    watch = watched(engine)

    def woken() -> None:
        engine._woken.set()
        if len(engine.waits) == waits:
            watch.halt()

    engine.when_waiting = woken
    watch.start()
    assert watch._thread is not None
    watch._thread.join()
    watch.stop(0)


def test_an_idle_query_sleeps_and_looks_once_a_second() -> None:
    engine = Sleeping()
    run_until(engine, 3)
    assert engine.waits == [1.0, 1.0, 1.0]
    assert (engine.planned, engine.looks) == (1, 3)


def test_a_query_that_sleeps_is_woken_to_stop() -> None:
    engine = Sleeping()
    watch, waiting = watched(engine), threading.Event()
    engine.when_waiting = waiting.set
    watch.start()
    assert waiting.wait(60.0)
    watch.stop(60.0)
    assert engine._woken.is_set()
    assert len(engine.waits) == 1


def test_a_query_wakes_when_a_partition_falls_idle() -> None:
    engine = Sleeping(due_ms=clock.now_ms() + 200)
    run_until(engine, 1)
    assert 0 < engine.waits[0] <= 0.2
    far = Sleeping(due_ms=clock.now_ms() + 3_600_000)
    run_until(far, 1)
    assert 0.9 < far.waits[0] <= 1.0


def test_promises_are_told_after_a_silence() -> None:
    engine = Sleeping(owes_promises=True)
    run_until(engine, 1)
    assert 0 < engine.waits[0] <= 0.5


class Told:
    """In the place of a teller: what it was told to note."""

    def __init__(self) -> None:
        self.status = NodeStatus("totals")
        self.noted: list[str] = []

    def note(self, engine: Sleeping, ends: Mapping[str, Mapping[int, int]]) -> None:
        self.noted.append("all")

    def note_time(self) -> None:
        self.noted.append("time")


def test_a_status_is_computed_when_there_is_something_new() -> None:
    engine, told = Sleeping(), Told()
    watch = watched(engine)
    watch._tellers, watch._engine = cast(list[Teller], [told]), cast(Engine, engine)
    watch._publish_at = math.inf
    for _ in range(3):
        watch.note()
    assert told.noted == ["all", "time", "time"]
    engine.steps += 1
    watch.note()
    assert told.noted[3:] == ["all"]
    engine.sources.append(SourceSpec("nowhere", "orders", parse_schema("n int")))
    for engine.end in (0, 7, 7):
        watch.note()
    assert told.noted[4:] == ["all", "all", "time"]


def test_an_error_of_the_users_code_in_this_process() -> None:
    try:
        exec(compile("def paid():\n    return {}['a']\npaid()", "app.py", "exec"), {})
    except KeyError as error:
        found = cause_of(error)
    assert found == "KeyError: 'a' (app.py, line 2, in paid)"
