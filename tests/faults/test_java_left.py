"""A driver that ends while Spark starts takes the Java of Spark with it."""

import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

from penstock.testing import wait_until
from penstock.testing.child import Child
from penstock.testing.spark_cluster import descendants

APP = """
import sys

import penstock as ps

app = ps.App(
    "shop", data=sys.argv[1], spark="local[1]", settings={"spark.driver.memory": "512m"}
)
app.stream("orders", "id long", partitions=1)

@app.derive("copies")
def copies(orders):
    return orders.where("id > 0")

if __name__ == "__main__":
    sys.exit(app.run())
"""
WITHIN = 60.0


def command_of(pid: int) -> str:
    with contextlib.suppress(OSError):  # it is gone
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def javas_of(pid: int) -> list[int]:
    return [each for each in descendants(pid) if "org.apache.spark" in command_of(each)]


@pytest.mark.spark
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_java_ends_with_its_driver(tmp_path: Path, number: signal.Signals) -> None:
    """Java has begun then, and does not listen yet."""
    file = tmp_path / "shop.py"
    file.write_text(APP)
    app = Child((sys.executable, str(file), str(tmp_path / "data")))
    try:
        javas = app.wait_until(lambda: javas_of(app.pid), within=WITHIN, what="Java")
        os.kill(app.pid, number)
        wait_until(lambda: not app.running, within=WITHIN, what="an end of the driver")
        wait_until(
            lambda: not any(map(command_of, javas)), within=WITHIN, what="an end of Spark's Java"
        )
        assert "Traceback" not in app.output
        if number != signal.SIGKILL:
            assert app.stop() == 0  # its status, as it has ended
            assert "Exception" not in app.output
    finally:
        app.close()
