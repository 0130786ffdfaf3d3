"""Records of the largest size that a topic takes, and rows whose records are larger than that."""

import json

from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock.testing import Run


def test_a_view_takes_what_its_input_takes(spark: SparkSession) -> None:
    app = ps.App("notes")
    app.stream("notes", "text string, n long", partitions=1)
    app.view("longest", sql="SELECT text, max(n) AS n FROM notes GROUP BY text")
    app.view("sums", sql="SELECT n, count(*) AS rows FROM notes GROUP BY n")
    text = "ä" * 450_000  # 0.9 MB, which the record of the view has in its key and in its value
    with Run(app, spark=spark) as run:
        run.feed("notes", [json.dumps({"text": text, "n": 1}, ensure_ascii=False).encode()])
        run.drain()
        (row,) = run.view("longest")
        assert row["text"] == text
        assert run.view("sums") == [{"n": 1, "rows": 1}]
        assert run.rejected("longest") == []


def test_rows_too_large_for_the_topic_are_rejected(spark: SparkSession) -> None:
    """In batches with others, as the only row of a key, and in place of a smaller row."""
    app = ps.App("notes")
    app.table("notes", "id long, text string", key="id", partitions=1)
    app.stream("letters", "id long, text string", partitions=1)
    app.view("kept", sql="SELECT id, text FROM notes")

    @app.derive("sent", key="id")
    def sent(letters: DataFrame) -> DataFrame:
        return letters

    with Run(app, spark=spark) as run:
        run.drain()
        run.log.alter("kept", max_message_bytes=1_000)
        run.log.alter("sent", max_message_bytes=1_000)
        run._stop()  # topics are looked at when a query starts
        run._watches = run._fresh_watches()
        run.upsert("notes", id=1, text="short")
        run.upsert("notes", id=2, text="x" * 2_000)
        run.feed("letters", [{"id": n, "text": "y" * 100 * n} for n in range(20)])
        run.drain()
        assert [row["id"] for row in run.view("kept")] == [1]
        (refused,) = run.rejected("kept")
        assert refused["reason"] == "too large"
        assert refused["detail"].startswith("a record of 2,")
        assert "kept takes 1,000 bytes" in refused["detail"]
        assert json.loads(refused["row"])["id"] == 2
        assert sorted(row["id"] for row in run.topic("sent")) == [*range(10)]
        assert len(run.rejected("sent")) == 10
        (watch,) = run._watches
        told = {status.name: status.uncomputable for status in watch.statuses}
        assert told == {"kept": {"too large": 1}, "sent": {"too large": 10}}

        # What a key had before is no longer true; what fits later is there again.
        run.upsert("notes", id=1, text="x" * 3_000)
        run.upsert("notes", id=2, text="short")
        run.drain()
        assert run.view("kept") == [{"id": 2, "text": "short"}]
        assert len(run.rejected("kept")) == 2
        assert [row["id"] for row in run.views["kept"].rows()] == [2]
