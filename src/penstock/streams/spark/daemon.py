"""Forks the Python workers of Spark, with everything they need loaded beforehand.

Spark starts it in place of its own daemon, once for each kind of worker. Those that run tasks need
compiled kernels, which take seconds to load; forked from here they have them at once.
"""

import sys

from pyspark.daemon import manager

from penstock.streams.spark.warm_up import warm_up

_TASKS = "pyspark.worker"


if __name__ == "__main__":
    if _TASKS in sys.argv:
        warm_up()
    manager()
