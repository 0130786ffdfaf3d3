import contextlib
import sys
from pathlib import Path

import pytest

from penstock.testing import SparkCluster, wait_until
from penstock.testing.child import Child

# Every task says that it runs, waits until it may go on, and gives the sum of its rows.
JOB = """
import sys
from pathlib import Path

folder, master = Path(sys.argv[1]), sys.argv[2]

def waiting(batches):
    import pyarrow as pa
    from pyspark import TaskContext
    from penstock.testing import wait_until

    task = TaskContext.get()
    (folder / f"task-{task.partitionId()}-{task.attemptNumber()}").touch()
    wait_until((folder / "go").exists, within=120)
    total = sum(sum(batch.column(0).to_pylist()) for batch in batches)
    yield pa.RecordBatch.from_pydict({"total": [total]})

from penstock.streams.spark.session import open_session

settings = {"spark.driver.memory": "512m", "spark.executor.memory": "512m"}
session = open_session("job", master=master, settings=settings)
totals = session.range(0, 1000, 1, 4).mapInArrow(waiting, "total long").collect()
print("answer", sum(row.total for row in totals))
session.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)  # five JVMs start, on a machine that may be busy
def test_a_job_outlives_a_worker(tmp_path: Path) -> None:
    workers = [tmp_path / "cluster" / "0", tmp_path / "cluster" / "1"]
    with SparkCluster(tmp_path / "cluster", workers=2, memory="512m") as cluster:
        job = Child((sys.executable, "-c", JOB, str(tmp_path), cluster.master))
        try:
            job.wait_until(
                lambda: len(list(tmp_path.glob("task-*-0"))) >= 2,
                within=120,
                what="a task on each worker",
            )
            assert all(at_work_in(worker) for worker in workers)
            cluster.kill_worker(0)
            wait_until(lambda: not at_work_in(workers[0]), what="the end of the executor")
            (tmp_path / "go").touch()
            job.wait_until(lambda: "answer" in job.output, within=120, what="an answer")

            assert "answer 499500" in job.output
        finally:
            job.close()

    assert list(tmp_path.glob("task-*-1")), "no task of the lost worker ran again"
    wait_until(lambda: not at_work_in(workers[1]), what="the end of the other executor")


def at_work_in(folder: Path) -> list[int]:
    """The processes whose current folder lies there, as that of an executor does."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # ended meanwhile
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append(int(process.name))
    return found
