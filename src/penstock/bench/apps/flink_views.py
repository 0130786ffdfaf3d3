"""All views of an app as one job of Flink SQL: runs in the environment of Flink, and knows nothing
of penstock.

Arguments are those of `flink_job.py`. A line of standard input is a job: `{"tables": {name: [types
of its columns, folder]}, "views": [[name, SQL, types of its columns]]}`; the answer is a line with
the milliseconds that it took. The results go nowhere.
"""

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

from pyflink.common import Configuration  # type: ignore[import-not-found]
from pyflink.table import (  # type: ignore[import-not-found]
    EnvironmentSettings,
    TableEnvironment,
)

# The settings that Flink is measured with everywhere.
_ALONE = runpy.run_path(str(Path(__file__).parents[1] / "flink_job.py"))
_SETTINGS = _ALONE["_SETTINGS"] | {
    # A hundred views have more exchanges than there are buffers for unless asked.
    "taskmanager.memory.network.min": "512m",
    "taskmanager.memory.network.max": "512m",
}
_FILES = _ALONE["_PARQUET"]
_NOWHERE = _ALONE["_NOWHERE"]


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
        stored = _FILES.format(folder=Path(folder).as_uri())
        _create(tables, name, types, stored)
    statements = tables.create_statement_set()
    for name, sql, types in job["views"]:
        tables.execute_sql(f"DROP TEMPORARY VIEW IF EXISTS `{name}`")
        tables.execute_sql(f"CREATE TEMPORARY VIEW `{name}` AS {sql}")
        _create(tables, f"{name}_results", types, _NOWHERE)
        statements.add_insert_sql(f"INSERT INTO `{name}_results` SELECT * FROM `{name}`")
    running = statements.execute().get_job_client()
    return int(running.get_job_execution_result().result().get_net_runtime())


def _create(tables: TableEnvironment, name: str, types: str, stored: str) -> None:
    tables.execute_sql(f"DROP TABLE IF EXISTS `{name}`")
    tables.execute_sql(f"CREATE TABLE `{name}` ({types}) WITH ({stored})")


if __name__ == "__main__":
    main(*sys.argv[1:])
