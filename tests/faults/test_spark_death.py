"""`kill -9` of Spark's Java while an app runs: Spark is started again, and all goes on once."""

import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from penstock import Log, Record
from penstock.runtime.folders import app_folder
from penstock.runtime.status import AppStatus
from penstock.runtime.why import explain
from penstock.testing import LogServerProcess, wait_until
from penstock.testing.child import Child
from penstock.testing.spark_cluster import descendants
from tests.faults.shop import Shop, check_answer, create_orders, orders_coming

WITHIN = 120.0


def java_of(pid: int) -> int | None:
    for each in descendants(pid):
        with contextlib.suppress(OSError):
            if b"org.apache.spark.deploy.SparkSubmit" in Path(f"/proc/{each}/cmdline").read_bytes():
                return each
    return None


@pytest.mark.spark
@pytest.mark.timeout(6 * WITHIN)
def test_spark_is_started_again(log_server: LogServerProcess, tmp_path: Path) -> None:
    log = log_server.address
    create_orders(log)
    shop = Shop(tmp_path, log, joined=True)
    home = app_folder(tmp_path / "data", "shop")

    def status() -> AppStatus:
        found = AppStatus.read(home)
        assert found is not None
        return found

    try:
        with orders_coming(log) as orders:
            shop.process.wait_until(lambda: AppStatus.read(home), within=WITHIN, what="a status")
            shop.process.wait_until(
                lambda: all(node.batch > 0 for node in status().nodes),
                within=WITHIN,
                what="batches",
            )
            java = java_of(shop.process.pid)
            assert java is not None
            os.kill(java, signal.SIGKILL)
            shop.process.wait_until(
                lambda: status().spark_died, within=WITHIN, what="the death of Spark in the status"
            )
            told = status()
            assert told.spark_died == "killed by SIGKILL"
            said = explain(told, told.nodes[0], life="running", now=told.written_ms)
            assert said[0].startswith("Spark died ")
            assert "(killed by SIGKILL) and is being started again" in said[0]
            assert "SparkDied" in told.nodes[0].error
            batches = {node.name: node.batch for node in told.nodes}
            shop.process.wait_until(
                lambda: all(node.batch > batches[node.name] for node in status().nodes),
                within=WITHIN,
                what="more batches",
            )
        shop.await_end(WITHIN)
        assert java_of(shop.process.pid) not in (None, java)
        after = status()
        assert not after.failing
        assert [node.restarts for node in after.nodes] == [1, 1, 1]
        assert shop.stop() == 0, shop.process.output[-3_000:]
        output = shop.process.output
        assert "Traceback" not in output, output
        assert "Py4J" not in output
        assert "Connection refused" not in output
    finally:
        shop.process.close()
    check_answer(log, orders.count)


APP = """
import os
import sys
from pathlib import Path

import penstock as ps
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType

data = Path(sys.argv[1])
app = ps.App(
    "once", data=data, spark="local[1]", buckets=1, settings={"spark.driver.memory": "512m"}
)
app.stream("orders", "id long", partitions=1)

@udf(LongType())
def doubled(number):
    return 2 * number

@app.derive("copies")
def copies(orders):
    return orders.select(doubled("id").alias("id"))

if __name__ == "__main__":
    sys.exit(app.run(once=True))
"""


@pytest.mark.spark
@pytest.mark.timeout(3 * WITHIN)
def test_to_the_present_end(tmp_path: Path) -> None:
    """With a function of the user's, which Java has to be told anew."""
    file = tmp_path / "once.py"
    file.write_text(APP)
    data = tmp_path / "data"
    with Log.join(data) as log:
        log.create("orders")
        log.append("orders", [Record(value=json.dumps({"id": n}).encode()) for n in range(100)])
        app = Child((sys.executable, str(file), str(data)))
        try:
            plan = app_folder(data, "once") / "@queries" / "main" / "offsets"
            app.wait_until(lambda: any(plan.glob("*")), within=WITHIN, what="a plan")
            java = java_of(app.pid)
            assert java is not None
            os.kill(java, signal.SIGKILL)
            wait_until(lambda: not app.running, within=WITHIN, what="its end")
            assert "Traceback" not in app.output
        finally:
            app.close()
        rows = [json.loads(record.value or b"{}") for record in log.read("copies", 0, 0)]
        assert [row["id"] for row in rows] == [2 * n for n in range(100)]
