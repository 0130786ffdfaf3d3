"""Flink SQL, asked line by line: runs in the environment of Flink and knows nothing of penstock.

A line of standard input is a job: `{"events": folder, "query": SQL over events, "types": of its
columns, "into": folder or null}`; the answer is a line with the milliseconds that it took.
"""

import json
import os
import sys
from pathlib import Path

from pyflink.common import Configuration  # type: ignore[import-not-found]
from pyflink.table import (  # type: ignore[import-not-found]
    EnvironmentSettings,
    TableEnvironment,
)

_SETTINGS = {
    "execution.runtime-mode": "STREAMING",
    "state.backend.type": "hashmap",
    "pipeline.object-reuse": "true",
    "table.local-time-zone": "UTC",
    "rest.bind-address": "127.0.0.1",
}
_EVENTS = """\
CREATE TABLE events (
    `key` BIGINT, shop BIGINT, amount DOUBLE, `at` TIMESTAMP_LTZ(3),
    WATERMARK FOR `at` AS `at` - INTERVAL '10' SECOND
) WITH ('connector' = 'filesystem', 'format' = 'parquet', 'path' = '{folder}')"""
_NOWHERE = "'connector' = 'blackhole'"
_FILES = (
    "'connector' = 'filesystem', 'format' = 'parquet', 'parquet.utc-timezone' = 'true', "
    "'path' = '{folder}'"
)


def main(jars: str, cores: str) -> None:
    # What Flink prints must not come between the answers.
    with os.fdopen(os.dup(1), "w", buffering=1) as answers:
        os.dup2(2, 1)
        settings = Configuration()
        for name, setting in _SETTINGS.items():
            settings.set_string(name, setting)
        settings.set_string("parallelism.default", cores)
        settings.set_string("taskmanager.numberOfTaskSlots", cores)
        paths = sorted(Path(jars).glob("*.jar"))
        settings.set_string("pipeline.jars", ";".join(path.as_uri() for path in paths))
        asked = EnvironmentSettings.new_instance().with_configuration(settings).build()
        tables = TableEnvironment.create(asked)
        for line in sys.stdin:
            print(json.dumps(milliseconds(tables, **json.loads(line))), file=answers)


def milliseconds(
    tables: TableEnvironment, events: str, query: str, types: str, into: str | None
) -> int:
    """How long the job ran, without the time that it took to plan it and to start a cluster."""
    tables.execute_sql("DROP TABLE IF EXISTS events")
    tables.execute_sql("DROP TABLE IF EXISTS results")
    tables.execute_sql(_EVENTS.format(folder=Path(events).as_uri()))
    sink = _FILES.format(folder=Path(into).as_uri()) if into else _NOWHERE
    tables.execute_sql(f"CREATE TABLE results ({types}) WITH ({sink})")
    job = tables.execute_sql(f"INSERT INTO results {query}").get_job_client()
    return int(job.get_job_execution_result().result().get_net_runtime())


if __name__ == "__main__":
    main(*sys.argv[1:])
