"""Watching a query: a thread that runs its batches, and starts it again after a failure."""

import logging
import math
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import takewhile

from py4j.protocol import Py4JError, Py4JJavaError

from penstock import clock
from penstock.errors import ForeignCheckpoint, NodeChanged, PenstockError, TopicExists, WriterFenced
from penstock.runtime.declarations import Node
from penstock.runtime.engine import BuiltQuery, Engine
from penstock.runtime.graph import downstream
from penstock.runtime.installation import Installation
from penstock.runtime.nodes import writer_name
from penstock.runtime.status import NodeStatus, State
from penstock.runtime.telling import Teller
from penstock.streams.spark.users_code import place_in, place_of

logger = logging.getLogger(__name__)

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
_PUBLISH_EVERY, _PUBLISH_AGAIN = 1.0, 10.0  # seconds; the second after a failure
# Seconds between two looks for news in topics that do not tell of it, and those of silence after
# which looks become rarer.
_LOOK_SOON, _LOOK_LATER, _SOON = 0.002, 0.02, 2.0
_LOOK_AGAIN = 1.0  # seconds until it looks for itself, whatever it was told, and at the wall clock
_QUIET = 0.5  # seconds of silence after which topics are told how far the clock is
_DIES_WITHIN = 2.0  # seconds from a connection that is lost to the end of the process
PATIENCE = 2  # failures after which nodes that are to blame are left to themselves

# What starting again does not mend. A query that is fenced runs in another process, which would be
# fenced in turn.
_LASTING = tuple(
    each.__name__ for each in (WriterFenced, NodeChanged, ForeignCheckpoint, TopicExists)
)
_OURS = re.compile(r"penstock\.errors\.(\w+): (.+?(?:\n  hint: [^\n]+)?)(?=\n|$)")


class Watch:
    """`on_commit` is called after every batch."""

    def __init__(
        self,
        installation: Installation,
        query: BuiltQuery,
        on_commit: Callable[[], None] = lambda: None,
        statuses: Mapping[str, NodeStatus] | None = None,
    ) -> None:
        """`statuses` are those of nodes that ran before, in whichever query."""
        self._installation = installation
        self.query = query
        self._on_commit = on_commit
        self._engine: Engine | None = None
        self._tellers = [Teller(each, (statuses or {}).get(each.name)) for each in query.nodes]
        self.statuses = [each.status for each in self._tellers]
        self.failures = 0  # since the last batch that was committed
        self.blamed: set[str] = set()  # the nodes that the last failure was about
        self.has_caught_up = False
        self._building = {each.name for each in query.nodes if not each.folder.is_whole}
        self._pause = _FIRST_PAUSE
        self._retry_at = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._publish_at = 0.0
        self._published: dict[tuple[str, str, int], int] = {}
        # After which step of the engine, and at which ends of its sources, statuses were brought up
        # to date; after which step the log was told.
        self._noted: tuple[int, dict[str, dict[int, int]]] | None = None
        self._told_log: int | None = None

    @property
    def is_failed(self) -> bool:
        return any(each.state == "failed" for each in self.statuses)

    @property
    def culprits(self) -> set[str]:
        """The nodes that keep others from going on, if it is only some of them."""
        if self.failures < PATIENCE or not self.is_failed:
            return set()
        names = {built.name for built in self.query.nodes}
        below = {each for name in self.blamed for each in downstream(self._nodes, name)}
        found = (self.blamed | below) & names
        return found if found < names else set()

    def reads(self, other: "Watch") -> bool:
        """Whether it reads what another query writes, which then has to join the others first."""
        written = {built.output.topic for built in other.query.nodes if built.output}
        return other is not self and any(
            spec.topic in written for built in self.query.nodes for spec in built.sources
        )

    @property
    def _nodes(self) -> Mapping[str, Node]:
        return self._installation.app.nodes

    # By itself

    def start(self) -> None:
        if self._refuse():
            return
        self._thread = threading.Thread(
            target=self._run, name=f"penstock-{self.query.name}", daemon=True
        )
        self._thread.start()

    def _refuse(self) -> bool:
        """Whether the query must not run. If one of its nodes is not what it was, the others wait
        for somebody's decision: what they would do meanwhile, it could not catch up with."""
        refused = self.query.refused
        for status in self.statuses if refused else ():
            status.turn("failed")
            status.retry_at = None
            which = refused.get(status.name)
            first = next(iter(refused))
            status.error = cause_of(which) if which else f"it runs together with {first}, see there"
            if which is not None:
                logger.error("node %s is not started: %s", status.name, status.error)
        self._retry_at = math.inf if refused else self._retry_at
        return bool(refused)

    def _run(self) -> None:
        silent_since = clock.monotonic()
        while not self._stop.is_set():
            if self.is_failed and not self._is_time():
                self._stop.wait(0.1)
                continue
            moved = self._step(flush=clock.monotonic() - silent_since > _QUIET)
            now = clock.monotonic()
            if moved:
                silent_since = now
            elif self._engine is not None:
                self._await_news(self._engine, silent_since)

    def _is_time(self) -> bool:
        if clock.monotonic() < self._retry_at:
            return False
        for status in self.statuses:
            status.restarts += status.state == "failed"
        return True

    def _await_news(self, engine: Engine, silent_since: float) -> None:
        """Returns when there may be something to do, or it is told to stop; sleeps until then."""
        try:
            due = math.inf
            if (idle := engine.next_idle()) is not None:
                # Of the wall clock, which may be set meanwhile: a second later it plans anyway.
                due = clock.monotonic() + min((idle - clock.now_ms()) / 1_000, _LOOK_AGAIN)
            if engine.owes_promises:
                due = min(due, silent_since + _QUIET)
            while not self._stop.is_set() and not engine.has_news():
                now = clock.monotonic()
                if now > due:
                    return
                look_every = _LOOK_SOON if now - silent_since < _SOON else _LOOK_LATER
                engine.news.wait(min(due - now, _LOOK_AGAIN), look_every=look_every)
        except Exception as error:  # whatever it is: nobody else would notice
            self._failed(error)

    # Step by step

    def _step(self, *, flush: bool = False) -> bool:
        """False when there was nothing to do, or it failed: that is noted, and not raised."""
        try:
            if self._engine is None:
                self._engine = self._installation.open_engine(self.query)
                for status in self.statuses:
                    status.turn(self._going(status))
                    status.retry_at = None
                logger.info("query %s runs", self.query.name)
            ends = self._present_ends(self._engine)
            moved = self._engine.step(flush=flush)
            if ends is not None and _has_read(self._engine, ends):
                self._has_seen_all()
        except Exception as error:  # whatever a node's code or Spark raises
            self._failed(error)
            return False
        self.has_caught_up |= not moved
        if moved:
            self.failures = 0
            self._pause = _FIRST_PAUSE
            for status in self.statuses:
                status.error = ""
                status.turn(self._going(status))
            self._on_commit()
        return moved

    def _present_ends(self, engine: Engine) -> dict[str, dict[int, int]] | None:
        """Where the sources end now; None when it does not matter, as it has caught up before."""
        if self.has_caught_up and not self._building:
            return None
        return {spec.name: engine.ends(spec.name) for spec in engine.sources}

    def _has_seen_all(self) -> None:
        """All that there was when the last batch was planned. To wait for a moment without anything
        new would take forever where events keep coming."""
        self.has_caught_up = True
        for built in self.query.nodes:
            if built.name in self._building:
                built.folder.note(whole=True)
        self._building = set()

    def _going(self, status: NodeStatus) -> State:
        return "building" if status.name in self._building else "running"

    def drain(self, *, at_present: bool = False) -> bool:
        """Runs batches until there is nothing left to do; false when it failed on the way.

        With `at_present` nothing is read that comes after this call.
        """
        if self._refuse():
            return False
        if self._engine is None:
            self._step()
        if self._engine is not None and at_present:
            self._engine.stop_at_present()
        while self._engine is not None and not self._stop.is_set() and self._step(flush=True):
            self.note()
        if self._engine is not None and not self._stop.is_set():
            self._has_seen_all()
        self._note_last()
        return self._engine is not None

    def note(self) -> None:
        """Brings the statuses up to date; cheap while there is nothing new."""
        engine = self._engine
        if engine is None:
            return
        steps = engine.steps  # first: a batch that is finished meanwhile is noted the next time
        place = steps, _ends(engine)
        for teller in self._tellers:
            if place == self._noted:
                teller.note_time()
            else:
                teller.note(engine, place[1])
        self._noted = place
        behind: set[str] = set()  # what is yet to be written; every node comes after its inputs
        for status in self.statuses:
            is_behind = bool(
                status.lag or behind.intersection(each.topic for each in status.inputs)
            )
            if is_behind:
                behind.add(status.output)
            if status.state != "failed":
                going = self._going(status)
                status.turn("waiting" if going == "running" and not is_behind else going)
        self._note_progress()
        if steps != self._told_log and self._publish_offsets():
            self._told_log = steps

    def _note_last(self) -> None:
        self._publish_at = 0.0
        self.note()

    def _note_progress(self) -> None:
        """Of all nodes together: one that reads only others of the query is as far as these are."""
        told = [each for status in self.statuses for each in status.inputs]
        sources = {each.name: each for each in told if each.source}.values()
        read = sum(each.read for each in sources)
        there = read + sum(each.lag for each in sources)
        for status in self.statuses:
            if status.name in self._building:
                status.built, status.to_build = read, there

    def halt(self) -> None:
        """Ends after the present batch."""
        self._stop.set()
        if (engine := self._engine) is not None:
            engine.news.wake()

    def stop(self, patience: float) -> None:
        """Between two batches if one ends in time; what is interrupted is run again later."""
        self.halt()
        if self._thread is not None:
            self._thread.join(patience)
            if self._thread.is_alive():
                self._installation.session.sparkContext.cancelAllJobs()
                self._thread.join(patience)
        self._note_last()
        self._close()
        for status in self.statuses:
            if status.state != "failed":
                status.turn("stopped")

    def _close(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = self._noted = self._told_log = None

    def _failed(self, error: BaseException) -> None:
        self._close()
        if self._installation.spark.death(_DIES_WITHIN if _has_lost_java(error) else 0.0):
            self._retry_at = math.inf  # whoever starts Spark again goes on with it
            for status in self.statuses:
                status.turn("failed")
            return
        said = cause_of(error)
        self.failures += 1
        self.blamed = self.query.blamed(error)
        is_lasting = said.startswith(_LASTING)
        for status in self.statuses:
            if self.blamed and status.name not in self.blamed:
                continue  # it goes on as soon as the others are left to themselves
            status.turn("failed")
            status.error = said
            status.retry_at = None if is_lasting else clock.now_ms() + round(self._pause * 1_000)
        if is_lasting:
            self._retry_at = math.inf
            logger.error("query %s is not started again: %s", self.query.name, said)
            return
        self._retry_at = clock.monotonic() + self._pause
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)
        logger.error("query %s failed: %s", self.query.name, said)

    def _publish_offsets(self) -> bool:
        """Tells the log how far each node is, as a consumer group that every tool can show; false
        when it has to be done later."""
        if clock.monotonic() < self._publish_at:
            return False
        self._publish_at = clock.monotonic() + _PUBLISH_EVERY
        for teller in self._tellers:
            group = writer_name(self._installation.app.name, teller.built.folder)
            offsets: dict[tuple[str, int], int] = {}
            for told in teller.status.inputs:
                for number, end in told.next.items():
                    place = told.topic, int(number)
                    # A topic may be read twice, as what is kept of it and what is rejected.
                    offsets[place] = min(end, offsets.get(place, end))
            changed = {
                place: end
                for place, end in offsets.items()
                if self._published.get((group, *place)) != end
            }
            if not changed:
                continue
            try:
                self._installation.log.commit(group, changed)
                self._published |= {(group, *place): end for place, end in changed.items()}
            except PenstockError as error:
                # The log is out of reach, as the query itself will find.
                self._publish_at = clock.monotonic() + _PUBLISH_AGAIN
                logger.warning("the offsets of %s were not published: %s", group, error.message)
                return False
        return True


def _ends(engine: Engine) -> dict[str, dict[int, int]]:
    """Where the sources end now, without those whose topics cannot be looked at."""
    found = {}
    for spec in engine.sources:
        with suppress(PenstockError):
            found[spec.name] = engine.ends(spec.name)
    return found


def _has_read(engine: Engine, ends: Mapping[str, Mapping[int, int]]) -> bool:
    return all(
        engine.offsets[name].next.get(number, 0) >= end
        for name, parts in ends.items()
        for number, end in parts.items()
    )


def _has_lost_java(error: BaseException) -> bool:
    is_answer = isinstance(error, Py4JJavaError)
    return isinstance(error, Py4JError | OSError | EOFError) and not is_answer


def cause_of(error: BaseException) -> str:
    """The one sentence that says what happened, out of what passed through several processes, with
    the line of the user's code that it was raised in."""
    place = place_of(error)
    if isinstance(error, PenstockError):
        hint = f"\n  hint: {error.hint}" if error.hint else ""
        return f"{type(error).__name__}: {_at(error.message, place)}{hint}"
    text = str(error)
    found = _OURS.findall(text)
    if found:
        name, message = found[-1]
        return f"{name}: {message}"
    lines = text.splitlines()
    for number in reversed([n for n, line in enumerate(lines) if line.startswith("Traceback (")]):
        raised = [line for line in lines[number + 1 :] if line and not line.startswith(" ")]
        if raised:
            frames = takewhile(lambda line: line.startswith(" "), lines[number + 1 :])
            return _at(raised[0].strip()[:500], place_in("\n".join(frames)))
    # What Java raised stands after a colon, on the line after the call that it was raised in.
    lines = [line.strip().removeprefix(": ") for line in lines if line.strip()]
    raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b.*: ", line)]
    said = (raised or lines or [type(error).__name__])[-1 if raised else 0][:500]
    if place and not said.startswith(type(error).__name__):
        said = f"{type(error).__name__}: {said}"
    return _at(said, place)


def _at(said: str, place: str) -> str:
    return f"{said} ({place})" if place else said
