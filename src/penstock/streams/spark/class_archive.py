"""The classes of Spark as Java has them when it is running, kept in a file.

Spark starts in half the time with it.

    python -m penstock.streams.spark.class_archive

Java uses an archive only if the same Java made it from the same jars, sizes and times of change
included, and starts without it otherwise. So the name of an archive stands for these. It takes
160 MB and is made once after an installation; the archive of the installation before is removed.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pyspark

from penstock.streams.spark.cached import cache_folder
from penstock.streams.spark.java import java_home

_WITHIN = 300.0
_HERE = "penstock.streams.spark.class_archive"
_MAKING = "PENSTOCK_MAKES_CLASS_ARCHIVE"


def java_options(home: Path) -> str:
    """What the Java of this home is started with, "" when there is no archive for it."""
    if path := os.environ.get(_MAKING):
        return f"-XX:ArchiveClassesAtExit={path}"
    archive = _archive(home)
    if not archive.exists():
        return ""
    # Java writes warnings to the standard output, which belongs to the program that started it.
    quiet = "-Xlog:disable -Xlog:all=error:stderr"
    return f"-XX:SharedArchiveFile={archive} -Xshare:auto {quiet}"


def make_archive() -> bool:
    """Makes the archive of the Java that would be started now; false when it cannot."""
    archive = _archive(java_home())
    if archive.exists():
        return True
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent, suffix=".unfinished") as folder:
        fresh = Path(folder) / archive.name
        command = (sys.executable, "-c", f"from {_HERE} import use_spark; use_spark()")
        with suppress(subprocess.SubprocessError):
            subprocess.run(
                command,
                env=os.environ | {_MAKING: str(fresh)},
                capture_output=True,
                timeout=_WITHIN,
                check=False,
            )
        if fresh.exists():
            for outdated in archive.parent.glob(f"{_installation(java_home())}-*.jsa"):
                outdated.unlink(missing_ok=True)
            fresh.replace(archive)
    return archive.exists()


def _archive(home: Path) -> Path:
    jars = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    files = [home / "release", home / "bin" / "java", *jars]
    contents = [(each.name, _stamp(each)) for each in files]
    return cache_folder() / f"{_installation(home)}-{_digest(contents)}.jsa"


def _installation(home: Path) -> str:
    return f"classes-{_digest((str(home), pyspark.__file__))}"


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns


def _digest(value: object) -> str:
    return hashlib.blake2b(repr(value).encode(), digest_size=8).hexdigest()


def use_spark() -> None:
    """A job as batches of apps are, then an orderly end, at which Java writes the archive."""
    from pyspark.sql.functions import col

    from penstock.streams.spark.leaves import leaf_frame, run_fresh
    from penstock.streams.spark.session import open_session

    session = open_session("classes", master="local[2]")
    gateway = session.sparkContext._gateway
    assert gateway is not None
    frame = session.range(0, 2, 1, 2).mapInArrow(lambda batches: batches, "id long")
    moved = frame.repartitionById(2, col("id").cast("int"))
    whole = moved.mapInArrow(lambda batches: batches, "id long")
    for _ in range(3):
        run_fresh(session, whole).executedPlan().executeCollect()
    leaf = leaf_frame(session, 0, whole.schema)
    leaf.where("id > 1").selectExpr("id + 1 AS n")._jdf.queryExecution().analyzed().toJSON()
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_WITHIN)


if __name__ == "__main__":
    sys.exit(not make_archive())
