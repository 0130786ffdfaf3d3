"""Flink SQL, asked line by line: runs in the environment of Flink and knows nothing of penstock.

A line of standard input is a job: `{"tables": {name: [types of its columns, folder]}, "query": SQL
over them, "types": of its columns, "into": folder or null, "taken_back": whether rows may be}`; the
answer is a line with the milliseconds that it took.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

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
    # Joins, groups and first rows take many rows at once, as window functions always do.
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
}
_NOWHERE = "'connector' = 'blackhole'"
_FILES = "'connector' = 'filesystem', 'path' = '{folder}', 'format' = "
_PARQUET = _FILES + "'parquet'"
_ROWS = _PARQUET + ", 'parquet.utc-timezone' = 'true'"
_CHANGES = _FILES + "'debezium-json'"


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
            print(json.dumps(milliseconds(tables, json.loads(line))), file=answers)


def milliseconds(tables: TableEnvironment, job: dict[str, Any]) -> int:
    """How long the job ran, without the time that it took to plan it and to start a cluster."""
    for name, (types, folder) in job["tables"].items():
        _create(tables, name, types, _PARQUET, folder)
    files = _CHANGES if job["taken_back"] else _ROWS
    _create(tables, "results", job["types"], files if job["into"] else _NOWHERE, job["into"] or "/")
    running = tables.execute_sql(f"INSERT INTO results {job['query']}").get_job_client()
    return int(running.get_job_execution_result().result().get_net_runtime())


def _create(tables: TableEnvironment, name: str, types: str, where: str, folder: str) -> None:
    stored = where.format(folder=Path(folder).as_uri())
    tables.execute_sql(f"DROP TABLE IF EXISTS `{name}`")
    tables.execute_sql(f"CREATE TABLE `{name}` ({types}) WITH ({stored})")


if __name__ == "__main__":
    main(*sys.argv[1:])
