"""Forks the Python workers of Spark, with everything they need loaded beforehand.

Spark starts it in place of its own daemon. Tasks need compiled kernels, which take seconds to load;
workers that are forked from here have them at once.
"""

import gc
import os
import socket

from pyspark import daemon

from penstock.streams.spark.warm_up import warm_up

_work = daemon.worker


def _work_quietly(sock: socket.socket, authenticated: bool) -> int:
    """As Spark's own, without a traceback when the task was given up and nobody listens."""
    try:
        return int(_work(sock, authenticated))
    except BrokenPipeError:
        os._exit(1)


if __name__ == "__main__":
    warm_up()
    # A worker collects its garbage after every task, and would go over all that is loaded here:
    # 100 ms. What is frozen is passed over.
    gc.freeze()
    daemon.worker = _work_quietly
    daemon.manager()
