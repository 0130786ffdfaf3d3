"""The Java process that Spark runs in: started by this process, and never left behind by it.

Java ends when its standard input does, a pipe that this process holds, however that comes about.
PySpark's own start breaks that when it is interrupted: it removes the folder in which Java is about
to say where it listens. Java fails at that, before it looks at its input, and stays for good.
"""

import gc
import logging
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int
from pyspark.sql import SparkSession
from pyspark.sql.udf import UserDefinedFunction

from penstock import clock
from penstock.errors import SparkDied

_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_PAUSE = 0.05
# Ctrl-C is for this process, which then ends Spark in order.
_SHELL = ("/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh")
_END_WITHIN = 5.0
_lock = threading.Lock()
_starting: list[subprocess.Popen[bytes]] = []


def start_java(conf: SparkConf) -> None:
    """Starts it for the context that is made next, unless it is there, and waits until it listens.

    Whatever this raises, KeyboardInterrupt for instance, it is gone then. Raises SparkDied.
    """
    logging.getLogger().addFilter(_is_news)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    if death_of_java():
        forget_java()
    if SparkContext._gateway is not None or _PORT in os.environ:  # spark-submit has started it
        return
    with tempfile.TemporaryDirectory(prefix="penstock-java-") as folder:
        told = Path(folder) / "listens"
        java = subprocess.Popen(
            (*_SHELL, *_command(conf)),
            stdin=subprocess.PIPE,
            env=os.environ
            | {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told)},
        )
        _starting.append(java)
        try:
            while not told.exists():
                if java.poll() is not None:
                    raise SparkDied(
                        f"Spark did not start: its Java ended ({_how(java.returncode)})",
                        hint="what it wrote says why; too little memory is a common reason",
                    )
                clock.sleep(_PAUSE)
            with told.open("rb") as file:
                port, secret = read_int(file), UTF8Deserializer().loads(file)  # type: ignore[no-untyped-call]
            with _lock, _environment({_PORT: str(port), _SECRET: str(secret)}):
                gateway = launch_gateway()  # type: ignore[no-untyped-call]
        except BaseException:
            java.kill()
            java.wait()
            raise
        finally:
            _starting.remove(java)
    gateway.proc = java
    SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm


def let_end_quietly(context: SparkContext) -> None:
    """Has the server that Java reports accumulators to take its end without a traceback."""
    server = context._accumulatorServer
    tell = server.handle_error

    def handle_error(request: Any, address: Any) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            tell(request, address)

    server.handle_error = handle_error  # type: ignore[assignment, method-assign]


def death_of_java(within: float = 0.0) -> str:
    """How it ended, "killed by SIGKILL" for instance; "" while it is there, or was started by
    somebody else. What has lost the connection to it can wait for its end, `within` seconds."""
    java = _process()
    if java is None:
        return ""
    with suppress(subprocess.TimeoutExpired):
        return _how(java.wait(within))
    return ""


def forget_java() -> None:
    """Ends it, if it is there or is being started by another thread, and lets this process start
    another one. Sessions and DataFrames that belonged to it are of no use any more."""
    for each in [*_starting]:
        each.kill()
    java, context = _process(), SparkContext._active_spark_context
    if java is not None:
        _end(java)
    if (gateway := SparkContext._gateway) is not None:
        with suppress(Exception):  # whatever it says, it is gone
            gateway.close()
    if context is not None:
        context._jsc = None
        with suppress(Exception):  # of a context that was not made to the end
            context._accumulatorServer.shutdown()
    SparkContext._active_spark_context = None
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    # Functions of users know Java's side of them since they were first used.
    for each in gc.get_objects():
        if type(each) is UserDefinedFunction:
            each._judf_placeholder = None


def _process() -> subprocess.Popen[bytes] | None:
    # Of a gateway, what is no attribute is looked for in Java.
    gateway = SparkContext._gateway
    return None if gateway is None else vars(gateway).get("proc")


def _command(conf: SparkConf) -> list[str]:
    submit = [str(Path(os.environ["SPARK_HOME"]) / "bin" / "spark-submit")]
    settings = [part for name, value in conf.getAll() for part in ("--conf", f"{name}={value}")]
    return [
        *submit,
        *settings,
        *shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")),
    ]


@contextmanager
def _environment(own: dict[str, str]) -> Iterator[None]:
    os.environ.update(own)
    try:
        yield
    finally:
        for name in own:
            del os.environ[name]


def _end(java: subprocess.Popen[bytes]) -> None:
    """In order if it takes no longer than that: it removes its files then."""
    if java.stdin is not None:
        with suppress(OSError):
            java.stdin.close()
    try:
        java.wait(_END_WITHIN)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()


def _is_news(record: logging.LogRecord) -> bool:
    """What py4j logs of a connection that was lost, by the root logger and with a traceback, it
    raises too."""
    return Path(record.pathname).parent.name != "py4j"


def _how(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
