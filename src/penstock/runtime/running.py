"""Running an app: all nodes at once, each on its own when it fails, until told to stop."""

import fcntl
import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from graphlib import TopologicalSorter
from pathlib import Path

from penstock import clock
from penstock.errors import AppError, PenstockError, SparkDied
from penstock.runtime.app import App
from penstock.runtime.asking import Asked
from penstock.runtime.folders import app_folder
from penstock.runtime.installation import (
    Installation,
    build_queries,
    check_renewal,
    installed,
)
from penstock.runtime.keeping import KeptViews, views_kept, views_served
from penstock.runtime.rebuilding import Rebuilds
from penstock.runtime.renewal import apply
from penstock.runtime.revival import Revival
from penstock.runtime.status import AppStatus, NodeStatus
from penstock.runtime.stopping import Stopped, told_to_stop
from penstock.runtime.watch import Watch, cause_of

logger = logging.getLogger(__name__)

_LOOK_EVERY = 0.25
_TELL_EVERY = 1.0
_TELL_AGAIN = 3.0  # what has not changed; well below the time after which an app counts as silent
_KEEP_AGAIN = 5.0
_STOP_WITHIN = 20.0
_ATTACH_AGAIN = 5.0
_MOST_DEATHS = 3  # of Spark, without a batch in between, until what has an end gives up
_DIES_WITHIN = 2.0


def run(
    app: App,
    *,
    once: bool,
    rebuild: Sequence[str],
    reset: Sequence[str],
    port: int | None = None,
    file: Path | None = None,
    watcher: Callable[[AppStatus], None] | None = None,
) -> int:
    """`watcher` is called with what there is to tell, several times a second. Views are served on
    the port, if there is one and the app goes on. `file` is the one that makes the app."""
    folder = app_folder(app.data, app.name)
    nodes = [NodeStatus(node.name) for node in app.ordered_nodes()]
    check_renewal(app, rebuild, reset)  # a slip costs nothing, not even what was told last
    with running_alone(folder, app.name), told_to_stop() as stop:
        now = clock.now_ms()
        status = AppStatus(
            app.name, os.getpid(), now, now, nodes, file=str(file.absolute()) if file else ""
        )
        Asked(folder).forget()
        status.write(folder)  # Spark takes its time
        try:
            with ExitStack() as opened:
                with stop.at_once():
                    installation = opened.enter_context(
                        installed(app, rebuild=rebuild, reset=reset)
                    )
                views = opened.enter_context(views_kept(installation))
                served = views_served(installation, None if once else port)
                status.address = opened.enter_context(served)
                supervisor = Supervisor(installation, folder, status, watcher, views)
                if not once:
                    return supervisor.run(stop)
                failing = supervisor.drain(stop)
                views.finish()  # who asks for the present end is told when it is not reached
                return failing
        except Stopped:
            return 0
        except Exception as error:
            status.error = cause_of(error)
            raise
        finally:
            status.stopped = True
            status.written_ms = clock.now_ms()
            status.write(folder)


class Supervisor:
    def __init__(
        self,
        installation: Installation,
        folder: Path,
        status: AppStatus,
        watcher: Callable[[AppStatus], None] | None = None,
        views: KeptViews | None = None,
    ) -> None:
        self._installation = installation
        self.status = status
        self._folder = folder
        self._watcher = watcher
        self._views = views
        if views is not None:
            installation.offer = views.offer
        self._told = self._written = 0.0
        self._facts = ""
        self._failing: list[str] = []
        self._keep_at = 0.0
        self._attach_at = 0.0
        self._is_halted = False  # because Spark is gone
        self._revival = Revival(installation.spark, status)
        self._rebuilds = Rebuilds(installation, folder, status.file)
        self.watches: list[Watch] = []
        self._watch()

    def _watch(self) -> None:
        """Makes a watch for each query there is; the statuses of nodes stay what they are, unless
        a node has begun anew."""
        installation = self._installation
        folders = installation.folders
        before = {
            each.name: each
            for watch in self.watches
            for each in watch.statuses
            if each.name in folders and folders[each.name].generation == each.generation
        }
        wake = self._views.wake if self._views is not None else lambda: None
        self.watches = [Watch(installation, query, wake, before) for query in installation.queries]
        order = [built.name for built in installation.nodes]
        told = [status for watch in self.watches for status in watch.statuses]
        self.status.nodes = sorted(told, key=lambda each: order.index(each.name))

    def drain(self, stop: threading.Event) -> int:
        """Brings every query to the present end of its inputs, each after those it reads from."""
        with self._shown():
            return self._drain(stop)

    def _drain(self, stop: threading.Event) -> int:
        drained: set[str] = set()
        while left := [each for each in self._in_order() if each.query.name not in drained]:
            watch = left[0]
            if stop.is_set() or self._reads_what_failed(watch):
                drained.add(watch.query.name)
                continue
            while not self._drained(watch, stop) and watch.failures == 1 and watch.blamed:
                pass  # once more, to be sure
            if self._revival.is_needed():
                self._await_revival(stop)
                continue
            if culprits := watch.culprits:
                self._detach(watch, culprits)
                continue
            drained.add(watch.query.name)
            if watch.query.is_beside and not watch.is_failed and not stop.is_set():
                self._attach(watch)
            else:
                watch.stop(_STOP_WITHIN)
        self._tell()
        return len(self.status.failing)

    def _drained(self, watch: Watch, stop: threading.Event) -> bool:
        draining = threading.Thread(target=watch.drain, kwargs={"at_present": True})
        draining.start()
        while draining.is_alive():
            draining.join(_LOOK_EVERY)
            self._keep_log()
            self._tell()
            if stop.is_set():
                watch.halt()
        return not watch.is_failed

    def _in_order(self) -> list[Watch]:
        """Each after those that write what it reads."""
        writers = {
            built.output.topic: watch.query.name
            for watch in self.watches
            for built in watch.query.nodes
            if built.output
        }
        above = {
            watch.query.name: {
                writers[spec.topic]
                for built in watch.query.nodes
                for spec in built.sources
                if writers.get(spec.topic, watch.query.name) != watch.query.name
            }
            for watch in self.watches
        }
        by_name = {watch.query.name: watch for watch in self.watches}
        return [by_name[name] for name in TopologicalSorter(above).static_order()]

    def _reads_what_failed(self, watch: Watch) -> bool:
        """Whether it would work on half of the rows."""
        failed = {each.output for each in self.status.nodes if each.state == "failed"}
        return any(spec.topic in failed for built in watch.query.nodes for spec in built.sources)

    def run(self, stop: threading.Event) -> int:
        with self._shown():
            return self._run(stop)

    def _run(self, stop: threading.Event) -> int:
        for watch in self.watches:
            watch.start()
        self._tell()
        while not stop.wait(_LOOK_EVERY):
            self._keep_log()
            try:
                self._look_after_nodes()
            except SparkDied:
                raise
            except Exception:  # of Spark, unless it died in the middle: that is seen to next
                if not self._installation.spark.death(_DIES_WITHIN):
                    raise
            self._tell()
        self.status.stopping = True
        self._tell()
        self._halt()
        return len(self.status.failing)

    def _look_after_nodes(self) -> None:
        if self._revival.is_needed():
            self._revive()
            return
        self._rebuild()
        if not self._rebuilds.is_preparing:
            self._move_nodes()

    def _revive(self, *, drains: bool = False) -> None:
        """Has all queries go on from what they have committed, once Spark runs again."""
        if not self._is_halted:
            self._is_halted = True
            self._halt()
            self._revival.tell()
            self._told = 0.0
            self._tell()
        if self._revival.succeeds():
            self._is_halted = False
            self._renew()
            for watch in self.watches if not drains else ():
                watch.start()
            self._told = 0.0

    def _await_revival(self, stop: threading.Event) -> None:
        """Of those who want to come to an end. Raises SparkDied when it dies again and again."""
        while self._revival.is_needed() and not stop.is_set():
            if self._revival.in_vain > _MOST_DEATHS:
                raise SparkDied(
                    f"Spark died {self._revival.in_vain} times in a row ({self.status.spark_died})",
                    hint="its last words are above; has the machine enough memory?",
                )
            self._revive(drains=True)
            self._tell()
            stop.wait(_LOOK_EVERY)

    def _halt(self) -> None:
        deadline = clock.monotonic() + _STOP_WITHIN
        for watch in self.watches:
            watch.halt()
        for watch in self.watches:
            try:
                watch.stop(max(0.0, deadline - clock.monotonic()))
            except Exception as error:  # a signal to all processes has ended Spark before
                logger.warning("query %s was cut short: %s", watch.query.name, cause_of(error))

    # Nodes that are built anew, and nodes that move

    def _rebuild(self) -> None:
        """Does what somebody has asked for, when it is ready."""
        renewal = self._rebuilds.ready()
        if renewal is None:
            return
        try:
            self._installation.log.topics()  # whether it can be reached: there is no way back later
        except PenstockError as error:
            self._rebuilds.failed(error)
            return
        self._halt()
        if self._views is not None:
            self._views.close()  # with what is committed of the old ones
        building = apply(self._installation, renewal)
        logger.info("%s is built anew beside the others", ", ".join(building))
        self._renew()
        self._rebuilds.done(building, renewal)
        for each in self.watches:
            each.start()
        self._told = 0.0

    def _move_nodes(self) -> None:
        """Lets nodes that fail go on by themselves, and those that have caught up join the rest."""
        for watch in self.watches:
            if culprits := watch.culprits:
                self._detach(watch, culprits)
                for each in self.watches:
                    each.start()
                return
        beside = [each for each in self.watches if each.query.is_beside]
        ready = [each for each in beside if each.has_caught_up and not each.is_failed]
        ready = [each for each in ready if not any(map(each.reads, beside))]
        if ready and clock.monotonic() >= self._attach_at:
            self._attach(ready[0])
            for each in self.watches:
                each.start()

    def _detach(self, watch: Watch, culprits: set[str]) -> None:
        nodes = [built for built in watch.query.nodes if built.name in culprits]
        logger.warning("%s goes on by itself, and the others without it", ", ".join(culprits))
        failed = {each.name: (each.error, each.restarts) for each in watch.statuses}
        self._halt()
        installation = self._installation
        installation.detach(watch.query, nodes)
        self._renew()
        for each in self.status.nodes:
            if each.name in culprits:
                each.turn("failed")
                each.error = failed[each.name][0]
                each.retry_at = clock.now_ms()

    def _attach(self, watch: Watch) -> None:
        names = ", ".join(built.name for built in watch.query.nodes)
        self._halt()
        try:
            if self._installation.attach(watch.query):
                logger.info("%s has caught up, and goes on with the others", names)
        except Exception as error:  # then it goes on beside them
            logger.warning("%s cannot join the others yet: %s", names, cause_of(error))
        self._attach_at = clock.monotonic() + _ATTACH_AGAIN
        self._renew()

    def _renew(self) -> None:
        build_queries(self._installation, again=True)
        if self._views is not None:
            self._views.renew()
        self._watch()

    def _keep_log(self) -> None:
        if clock.monotonic() < self._keep_at:
            return
        try:
            self._installation.keep_log()
        except PenstockError as error:
            logger.error("the log is out of reach: %s", error)
            self._keep_at = clock.monotonic() + _KEEP_AGAIN

    def _tell(self) -> None:
        """A failure at once, and before it is shown: who then asks is to be told the same."""
        self.status.views_error = self._views.error if self._views else ""
        failing = [each.name for each in self.status.failing]
        is_due = clock.monotonic() - self._told >= _TELL_EVERY
        if is_due or self._watcher is not None:
            for watch in self.watches:
                watch.note()
        if failing != self._failing or is_due:
            self._failing = failing
            self._told = clock.monotonic()
            self._write()

    def _write(self) -> None:
        facts, now = self.status.facts(), clock.monotonic()
        if facts != self._facts or now - self._written >= _TELL_AGAIN:
            self._facts, self._written = facts, now
            self.status.written_ms = clock.now_ms()
            self.status.write(self._folder)

    @contextmanager
    def _shown(self) -> Iterator[None]:
        """Has the status shown by a thread of its own: a terminal that takes nothing, because
        somebody has paused it, must not keep nodes from going on."""
        watcher, is_over = self._watcher, threading.Event()
        if watcher is None:
            yield
            return

        def show() -> None:
            while not is_over.wait(_LOOK_EVERY):
                watcher(self.status)

        thread = threading.Thread(target=show, name="penstock-shown", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
            watcher(self.status)


@contextmanager
def running_alone(folder: Path, app: str) -> Iterator[None]:
    """One process runs an app at a time; a second one is told who does."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read().strip() or "unknown"
            raise AppError(
                f"app {app!r} is running already, as process {owner}",
                hint="penstock status shows it; stop that one first",
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield
