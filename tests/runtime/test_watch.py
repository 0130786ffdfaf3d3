import pytest

from penstock.errors import NodeChanged, TopicNotFound
from penstock.runtime.watch import cause_of

STREAM_FAILED = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted.
Traceback (most recent call last):
  File "app.py", line 7, in through
    raise RuntimeError("the scale is out of order")
RuntimeError: the scale is out of order
 SQLSTATE: XXKST"""

OURS = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: latestOffset failed
Traceback (most recent call last):
  File "topic.py", line 9, in open_topic
penstock.errors.TopicNotFound: there is no topic 'clicks'
  hint: create it first
 SQLSTATE: XXKST"""

FOREIGN = STREAM_FAILED.replace("\nRuntimeError: the scale", "\nlib.ArrowInvalid: the scale")

JAVA = """An error occurred while calling o2051.start.
: org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] no such source
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.dataSourceNotFoundError(Q.scala:1)"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Exception(STREAM_FAILED), "RuntimeError: the scale is out of order"),
        (Exception(FOREIGN), "lib.ArrowInvalid: the scale is out of order"),
        (Exception(OURS), "TopicNotFound: there is no topic 'clicks'\n  hint: create it first"),
        (
            Exception(JAVA),
            "org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] no such source",
        ),
        (
            NodeChanged("it is another", hint="reset it"),
            "NodeChanged: it is another\n  hint: reset it",
        ),
        (Exception("it broke\nbadly"), "it broke"),
        (TopicNotFound(""), "TopicNotFound: "),
        (ValueError(), "ValueError"),
    ],
)
def test_what_happened_in_one_sentence(error: BaseException, said: str) -> None:
    assert cause_of(error) == said
