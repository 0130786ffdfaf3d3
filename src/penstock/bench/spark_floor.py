"""How long a small batch takes: nodes of an app, fed a hundred rows at a time."""

import json
import random
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession

import penstock as ps
from penstock import clock
from penstock.events.record import Record
from penstock.log import Log
from penstock.runtime.installation import installed

STATEFUL, STATELESS = "stateful", "stateless"
_ROWS = 100
_WARM = 20
_KEYS = 100_000
_SCHEMA = "key long, number long, at timestamp"


class Floor:
    """An app with state and one without, from topic to topic, with a log of their own."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self._apps = {kind: _app(kind, session, folder) for kind in (STATEFUL, STATELESS)}
        self._random = random.Random(1)
        self._at = clock.now_ms()

    def median_ms(self, kind: str, batches: int) -> float:
        """Of so many batches, each from its plan to its commit; those of no rows do not count."""
        found = []
        with installed(self._apps[kind]) as installation:
            engine = installation.open_engine(installation.queries[0])
            for _ in range(_WARM + batches):
                self._feed(installation.log, kind)
                engine.step()
                found.append(engine.batch_ms)
                while engine.step():
                    pass
            engine.close()
        return float(median(found[-batches:]))

    def _feed(self, log: Log, topic: str) -> None:
        self._at += 1_000
        records = []
        for number in range(_ROWS):
            key = self._random.randrange(_KEYS)
            row = {"key": key, "number": number, "at": self._at + number}
            records.append(Record(value=json.dumps(row).encode()))
        log.append(topic, records)


def _app(kind: str, session: SparkSession, folder: Path) -> ps.App:
    app = ps.App(f"bench-{kind}", data=folder, spark=session)
    app.stream("rows", _SCHEMA, topic=kind, event_time=ps.EventTime("at", wait="1s"), partitions=2)
    if kind == STATEFUL:

        @app.derive("counted", key="key")
        def counted(rows: DataFrame) -> DataFrame:
            return ps.aggregate(rows, by="key", n=ps.count(), total=ps.sum("number"))

    else:

        @app.derive("filtered")
        def filtered(rows: DataFrame) -> DataFrame:
            return rows.where("number >= 10")

    return app
