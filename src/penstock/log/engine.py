"""A log's folder opened by this process: its topics, its journal, its identity."""

import json
import logging
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from weakref import ref

from penstock.clock import now_ms
from penstock.errors import InvalidInput, LogClosed
from penstock.log.owner import Ownership
from penstock.log.storage.files import make_folder, storage_error, write_atomically
from penstock.log.storage.journal import Journal
from penstock.log.topics import Topics
from penstock.log.writers import Writers

log = logging.getLogger(__name__)

FORMAT = 1
IDENTITY_FILE = "log.json"
SYNC_THREADS = 4  # a sync waits for the disk, not for a core
PRODUCER_IDS_AT_ONCE = 1000
RETENTION_CHECK_SECONDS = 30.0
PRODUCER_IDS_FILE = "producer-ids"


class Engine:
    def __init__(self, folder: Path | None) -> None:
        """Takes the folder over and recovers it; None is a log in memory."""
        self.folder = folder
        self.ownership = None if folder is None else Ownership(folder)
        self.closed = False
        self._syncs = ThreadPoolExecutor(SYNC_THREADS, "penstock-sync")
        self._id_lock = threading.Lock()
        try:
            self._next_id = self._ids_end = _producer_ids_end(folder)
            self.cluster_id = _identity(folder)
            if folder is not None:
                make_folder(folder / "topics")
                make_folder(folder / "journal")
            self.topics = Topics(folder, self._syncs)
            self.journal = Journal(folder and folder / "journal", self._syncs)
            self.writers = Writers(self)
        except OSError as error:
            self._let_go()
            raise storage_error(error, f"opening the log in {folder}") from error
        except BaseException:
            self._let_go()
            raise
        self._closing = threading.Event()
        self._keeper = threading.Thread(
            target=_keep,
            args=(ref(self.topics), self._closing),
            name="penstock-retention",
            daemon=True,
        )
        self._keeper.start()

    def new_producer_id(self) -> int:
        """An id that no producer of this log ever had; waits for the disk once in a thousand."""
        with self._id_lock:
            if self._next_id == self._ids_end:
                self._reserve_ids(self._ids_end + PRODUCER_IDS_AT_ONCE)
            self._next_id += 1
            return self._next_id - 1

    def _reserve_ids(self, end: int) -> None:
        if self.folder is not None:
            try:
                write_atomically(self.folder / PRODUCER_IDS_FILE, str(end).encode())
            except OSError as error:
                raise storage_error(error, "reserving producer ids") from error
        self._ids_end = end

    def check_open(self) -> None:
        if self.closed:
            raise LogClosed("this log was closed", hint="open it again with Log.open")

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._closing.set()
            self._keeper.join()
            try:
                self.topics.close()
                self.journal.close()
            finally:
                self._let_go()

    def _let_go(self) -> None:
        self._syncs.shutdown()
        if self.ownership is not None:
            self.ownership.release()


def _keep(topics: "ref[Topics]", closing: threading.Event) -> None:
    """Applies retention from time to time, as long as somebody has the topics."""
    while not closing.wait(RETENTION_CHECK_SECONDS):
        found = topics()
        if found is None:
            return
        try:
            gone = found.expire(now_ms())
        except Exception:  # what is due from time to time must go on
            log.exception("retention failed")
        else:
            if gone:
                log.info("retention deleted %d segments", gone)
        del found


def _identity(folder: Path | None) -> str:
    if folder is None:
        return str(uuid.uuid4())
    path = folder / IDENTITY_FILE
    if path.exists():
        facts = json.loads(path.read_text())
        if facts.get("format") != FORMAT:
            raise InvalidInput(
                f"{folder} holds a log of format {facts.get('format')}, this is {FORMAT}",
                hint="use the version of penstock that wrote it",
            )
        return str(facts["cluster_id"])
    cluster_id = str(uuid.uuid4())
    write_atomically(path, json.dumps({"format": FORMAT, "cluster_id": cluster_id}).encode())
    return cluster_id


def _producer_ids_end(folder: Path | None) -> int:
    path = folder and folder / PRODUCER_IDS_FILE
    return int(path.read_text()) if path and path.exists() else 1
