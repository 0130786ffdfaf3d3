"""Whether Spark failed because of the rows that it was given, and what it says about them.

What is not certain to be about rows is not taken for it: a batch that fails for another reason is
run again, and no row is rejected for it.
"""

import builtins
import re
from typing import Any

from pyspark.errors import PySparkException

from penstock.streams.spark.blame import blames
from penstock.streams.spark.query.rejections import Reason
from penstock.streams.spark.users_code import place_in

_PYTHON = "org.apache.spark.api.python.PythonException"
# What Spark's own functions raise for a value; a plain SparkException is about the machinery.
_JAVA = re.compile(
    r"org\.apache\.spark\."
    r"(Spark(Arithmetic|NumberFormat|DateTime|Runtime|ArrayIndexOutOfBounds|IllegalArgument"
    r"|NoSuchElement)Exception|SparkException)"
)
_IN_SPARK_EXCEPTION = ("MALFORMED_RECORD_IN_PARSING", "FAILED_EXECUTE_UDF")
_NOT_OF_ROWS = ("INTERNAL_ERROR", "PYTHON_EXCEPTION")
# As the same thing is called where penstock computes it.
_KINDS = {"DIVIDE_BY_ZERO": "division by zero"}
# Of the machine or of the program: another row would fare no better, or the same row later.
_ELSEWHERE = (MemoryError, OSError, EOFError, ImportError, NameError, SyntaxError)
_NETWORK = re.compile(r"Connection|Timeout")


def reason_of(error: BaseException) -> Reason | None:
    """None for an error that is not about the rows of a segment."""
    if any(kind != "phase" for kind, _ in blames(error)):
        return None
    java = _java(error)
    if java is None:
        return None
    name, text = java.getClass().getName(), str(java.getMessage() or "")
    if name == _PYTHON:
        return _of_python(text)
    if not _JAVA.fullmatch(name):
        return None
    condition = str(java.getCondition() or "").split(".")[0]
    if not condition or condition in _NOT_OF_ROWS:
        return None
    if name.endswith(".SparkException") and condition not in _IN_SPARK_EXCEPTION:
        return None
    kind = _KINDS.get(condition) or condition.lower().replace("_", " ")
    said = re.sub(r"^\[[\w.]+\] | SQLSTATE: \w+$", "", text.splitlines()[0])
    return Reason(kind, said)


def _java(error: BaseException) -> Any:
    """What was raised in Java."""
    if isinstance(error, PySparkException):
        return getattr(error, "_origin", None)
    return getattr(error, "java_exception", None)


def _of_python(text: str) -> Reason | None:
    """The last traceback is that of the error which nobody caught."""
    _, found, traceback = text.rpartition("Traceback (most recent call last):")
    raised = [line for line in traceback.splitlines() if line and not line.startswith(" ")]
    if not found or not raised:
        return None
    name = raised[0].split(":")[0].strip()
    kind = getattr(builtins, name, None)
    is_elsewhere = isinstance(kind, type) and issubclass(kind, _ELSEWHERE)
    # Of a library, only the name of the exception is known here.
    if is_elsewhere or _NETWORK.search(name) or name.startswith(("pyspark.", "penstock.")):
        return None
    place = place_in(traceback)
    return Reason(name, "\n".join(raised) + (f"\n({place})" if place else ""))
