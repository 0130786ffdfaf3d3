"""Forks the Python workers of Spark, with everything they need loaded beforehand.

Spark starts it in place of its own daemon, once for each kind of worker. Those that run tasks need
compiled kernels, which take a second to import; forked from here they have them at once.
"""

import sys

from pyspark.daemon import manager

_TASKS = "pyspark.worker"


def _prepare() -> None:
    import penstock.streams.algebra.specs
    import penstock.streams.source.rows
    import penstock.streams.spark.packing
    import penstock.streams.spark.source
    import penstock.streams.spark.staging  # noqa: F401


if __name__ == "__main__":
    if _TASKS in sys.argv:
        _prepare()
    manager()
