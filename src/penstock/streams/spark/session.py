"""The Spark session that nodes run in, with the settings that small micro-batches need."""

import os
import re
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from penstock.errors import InvalidInput
from penstock.streams.spark.class_archive import java_options
from penstock.streams.spark.gateway import forget_java, let_end_quietly, start_java
from penstock.streams.spark.home import prepare_home
from penstock.streams.spark.java import prepare_java

_LOG4J = Path(__file__).with_name("log4j2.properties")
_HERE = re.compile(r"local.*|spark://(?:localhost|127\.[\d.]+):\d+")
_LOCAL = re.compile(r"local(?:\[(?P<cores>\*|\d+)(?:,(?P<failures>\d+))?\])?")
_GIGABYTE = 2**30
_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"

_SETTINGS = {
    # Of streaming queries of Spark's own, which an app has none of. Hadoop's other manager forks a
    # process for every file of a checkpoint.
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming"
    ".checkpointing.FileSystemBasedCheckpointFileManager",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "penstock.streams.spark.daemon",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    # A bucket must stay its partition, which adaptive execution would merge with others.
    "spark.sql.adaptive.enabled": "false",
    # With it, Spark 4.3 plans array lambdas over a column of a join's other side wrongly.
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    # How many batches of such a query can be gone back to: operators ask for their offsets.
    "spark.sql.streaming.minBatchesToRetain": "100",
    "spark.ui.enabled": "false",
    # Every batch's plan is written out as text for that page, which takes 6 ms in detail.
    "spark.sql.ui.explainMode": "simple",
    "spark.ui.showConsoleProgress": "false",
    # The default options: extraJavaOptions, if given, are added to them.
    _JAVA_OPTIONS: f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}",
}


def open_session(
    name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Starts Spark, here on all cores unless `master` says otherwise; `settings` go before ours.

    A local master retries a task as a cluster does, `spark.task.maxFailures` times in all, 4 unless
    set. On a cluster, set `spark.sql.shuffle.partitions` to its cores; how many there will be is
    not known here. Raises JavaMissing, SparkDied, and InvalidInput when this process has a session
    already: most settings would not reach it. Interrupted, it leaves nothing of Spark behind.
    """
    # The active session is a thread's own; the context is the process's.
    if SparkContext._active_spark_context is not None:
        raise InvalidInput(
            "this process has a Spark session already",
            hint="give that session to the app, `App(spark=session)`, or stop it first",
        )
    chosen = settings_for(master, settings or {})
    prepare_java()
    prepare_home()
    classes = java_options(Path(os.environ["JAVA_HOME"]))
    chosen[_JAVA_OPTIONS] = f"{chosen[_JAVA_OPTIONS]} {classes}".strip()
    # Spark starts Python by these names: for tasks, and for data sources beside the driver.
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if _LOCAL.fullmatch(chosen["spark.master"]):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().setAppName(name).setAll([*chosen.items()])
    return _opened(conf)


def _opened(conf: SparkConf) -> SparkSession:
    """By a thread of its own: there nothing is interrupted in the middle of a call of Java, and
    Spark does not take Ctrl-C for itself."""

    def opened() -> SparkSession:
        start_java(conf)
        session = SparkSession.builder.config(conf=conf).getOrCreate()
        let_end_quietly(session.sparkContext)
        return session

    with ThreadPoolExecutor(1, "penstock-spark") as thread:
        opening = thread.submit(opened)
        try:
            return opening.result()
        except KeyboardInterrupt:
            forget_java()
            wait([opening])
            forget_java()  # if it has come about in between
            raise


def check_session(session: SparkSession) -> None:
    """Raises InvalidInput when results would depend on a setting of this session."""
    for setting in ("spark.sql.session.timeZone", "spark.sql.adaptive.enabled"):
        needed = _SETTINGS[setting]
        if (found := session.conf.get(setting)) != needed:
            raise InvalidInput(
                f"the session of the app has {setting}={found}, and nodes need {needed}",
                hint=f'session.conf.set("{setting}", "{needed}"), or let the app open its own',
            )


def settings_for(master: str | None, given: Mapping[str, str]) -> dict[str, str]:
    """All the settings of a session, its master among them."""
    master = master or given.get("spark.master", "local[*]")
    ours = _SETTINGS | {"spark.driver.memory": _driver_memory()}
    if local := _LOCAL.fullmatch(master):
        cores = _cores() if local["cores"] == "*" else int(local["cores"] or 1)
        failures = local["failures"] or given.get("spark.task.maxFailures", "4")
        master = f"local[{cores},{failures}]"
        ours["spark.sql.shuffle.partitions"] = str(cores)
        # A checkpoint's files without a checksum beside each, which cost a process of their own:
        # 20 ms less a batch. Hadoop's client of S3 wants the usual one, LocalFileSystem.
        ours["spark.hadoop.fs.file.impl"] = "org.apache.hadoop.fs.RawLocalFileSystem"
    if _HERE.fullmatch(master):
        ours |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    return ours | dict(given) | {"spark.master": master}


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _driver_memory() -> str:
    """A quarter of the machine's memory: Python's processes and the page cache want the rest."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{min(max(memory // 4, _GIGABYTE), 4 * _GIGABYTE) // 2**20}m"
