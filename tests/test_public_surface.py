"""What users may lean on, written down: a name that comes or goes changes this file too."""

import inspect
import re
import subprocess
import sys
from importlib.metadata import version
from types import ModuleType

import pytest

import penstock
from penstock import errors, log, testing

SURFACE = {
    penstock: [
        "Aggregation",
        "App",
        "EventTime",
        "Log",
        "Position",
        "Record",
        "__version__",
        "aggregate",
        "anomaly",
        "approx_distinct",
        "approx_quantile",
        "approx_top",
        "at_processing_time",
        "changes",
        "collect",
        "compare",
        "console",
        "count",
        "dedup",
        "distinct",
        "each_batch",
        "enrich",
        "errors",
        "first",
        "gaps",
        "histogram",
        "hopping",
        "join",
        "last",
        "latest",
        "max",
        "mean",
        "min",
        "parquet",
        "quantile",
        "rate",
        "rolling",
        "seen_before",
        "session",
        "sliding",
        "sql",
        "stddev",
        "sum",
        "timed",
        "top",
        "tumbling",
        "versions",
        "window",
    ],
    log: ["Bounds", "GroupDescription", "GroupLag", "Log", "TopicDescription"],
    testing: [
        "KafkaProcess",
        "LogServerProcess",
        "Run",
        "SparkCluster",
        "assert_stream_equals_batch",
        "kafka_missing",
        "run_kafka_tool",
        "spark_kafka_jars",
        "spark_kafka_missing",
        "wait_until",
    ],
}
HEAVY = ("confluent_kafka", "kio", "numba", "numpy", "polars", "pyarrow", "pyspark", "rich")


@pytest.mark.parametrize("module", SURFACE, ids=lambda module: module.__name__)
def test_public_names(module: ModuleType) -> None:
    assert sorted(module.__all__) == SURFACE[module]
    assert all(hasattr(module, name) for name in module.__all__)


def test_the_version_is_the_one_installed() -> None:
    assert penstock.__version__ == version("penstock")


def test_the_exception_tree_is_the_one_drawn() -> None:
    drawn: list[tuple[str, str]] = []  # each error and the one it stands under
    above = {-1: "Exception"}
    for line in re.findall(r"^    ([ │├└─]*\w+)", errors.__doc__ or "", re.MULTILINE):
        name = line.lstrip(" │├└─")
        depth = (len(line) - len(name)) // 4
        drawn.append((name, above[depth - 1]))
        above[depth] = name

    # In the order of the source, which is that of the drawing.
    assert drawn == [
        (name, error.mro()[1].__name__)
        for name, error in vars(errors).items()
        if inspect.isclass(error) and error.__module__ == errors.__name__
    ]


def test_importing_penstock_stays_light() -> None:
    program = "import penstock, sys; print(*sys.modules)"
    loaded = subprocess.run(
        (sys.executable, "-c", program), capture_output=True, text=True, check=True
    ).stdout.split()

    assert [name for name in HEAVY if name in loaded] == []
