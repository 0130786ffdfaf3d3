"""The topics that an app needs: made where it may make them, and checked where they are there."""

import logging
from collections.abc import Mapping
from contextlib import closing

from penstock.errors import DataLost, InvalidInput, TopicExists, TopicNotFound
from penstock.log import Log
from penstock.log.policy import FOREVER, TopicPolicy
from penstock.runtime.declarations import Declaration, Derivation, Rejected, Topic
from penstock.runtime.nodes import Built
from penstock.streams.source.topic import open_topic

logger = logging.getLogger(__name__)

_LARGEST = 2**31 - 1  # of a record batch, whose size is an int32


def _is_of_node(found: Declaration, declared: Mapping[str, Declaration]) -> bool:
    return isinstance(found, Rejected) and isinstance(declared[found.stream], Derivation)


def ensure_topics(built: Built, declared: Mapping[str, Declaration], log: Log) -> None:
    """Makes the topics that the node may make; the others have to be there."""
    present = set(log.topics())
    for name in built.node.inputs:
        found = declared[name]
        topic = declared[found.stream] if isinstance(found, Rejected) else found
        if not isinstance(topic, Topic):
            continue
        if topic.topic in present:
            if topic.key:
                _keep_rows(topic, log)
            continue
        if topic.partitions is None:
            raise TopicNotFound(
                f"node {built.name!r} reads topic {topic.topic!r}, which is not there",
                hint=f"penstock topics create {topic.topic}, or declare it with partitions=4 "
                "to have it made",
            )
        # The rows of a table are there until they are deleted, however old they are.
        kept = {"retention_ms": -1} if topic.key else {}
        log.create(topic.topic, partitions=topic.partitions, **kept)
    for spec in built.sources:
        # Its node would make it with the first row that is rejected.
        if spec.topic not in present and _is_of_node(declared[spec.name], declared):
            log.create(spec.topic, retention_ms=-1)
    if built.output is None:
        return
    if built.output.topic not in present:
        if built.folder.has_begun:
            raise DataLost(
                f"topic {built.output.topic!r}, which node {built.name!r} has written, is gone",
                hint=f"--reset {built.name} writes it anew from the beginning of its inputs",
            )
        partitions = built.output.partitions or built.place.buckets
        # Its records have the time of their events, which may be long ago: retention by time would
        # take what was written a moment ago.
        log.create(
            built.output.topic,
            partitions=partitions,
            retention_ms=-1,
            max_message_bytes=_largest_record(built.name, declared, log),
        )


def _keep_rows(table: Topic, log: Log) -> None:
    """Has the topic of a table keep its records: the row of a key that nobody changes for a week
    would be gone. Raises InvalidInput where somebody has chosen how long, or how many, are kept."""
    policy, default = log.describe(table.topic).policy, TopicPolicy()
    if (
        policy.cleanup_policy == "compact"
    ):  # then the last of each key stays, whatever the rest says
        return
    limits = [
        (setting, getattr(policy, setting.replace(".", "_")))
        for setting in ("retention.ms", "retention.bytes")
    ]
    limits = [(setting, limit) for setting, limit in limits if limit != FOREVER]
    if not limits:
        return
    if limits == [("retention.ms", default.retention_ms)]:  # as a producer that came first made it
        log.alter(table.topic, retention_ms=FOREVER)
        logger.warning(
            "%s is a table, and its topic %s kept records for 7 days: from now on it keeps all",
            table.name,
            table.topic,
        )
        return
    ((setting, limit), *_) = limits
    raise InvalidInput(
        f"table {table.name!r} would lose rows: its topic {table.topic!r} has {setting}={limit}",
        hint=" ".join(
            (
                f"penstock topics alter {table.topic}",
                *(f"--set {each}={FOREVER}" for each, _ in limits),
            )
        ),
    )


def _largest_record(node: str, declared: Mapping[str, Declaration], log: Log) -> int:
    """The bytes that a record of a node may have: a row may hold all that one record of each topic
    holds, directly or through other nodes, in its key and again in its value."""
    topics: set[str] = set()
    waiting, seen = [node], set[str]()
    while waiting:
        found = declared[waiting.pop()]
        if found.name in seen:
            continue
        seen.add(found.name)
        match found:
            case Topic():
                topics.add(found.topic)
            case Rejected():
                waiting.append(found.stream)
            case Derivation():
                waiting += found.inputs
    taken = sum(log.describe(each).policy.max_message_bytes for each in topics)
    return min(2 * taken + TopicPolicy().max_message_bytes, _LARGEST)


def check_unwritten(log: str, name: str, node: str) -> None:
    """A node that begins has its topic to itself: rows of two writers would be one table.

    Records of transactions that were aborted, as by a crash in the first batch, are nobody's.
    """
    with closing(open_topic(log, name)) as topic:
        for number in range(topic.partitions()):
            start, end = topic.bounds(number)
            if start or any(
                some.num_rows for some in topic.columns(number, start, end, ["offset"])
            ):
                raise TopicExists(
                    f"topic {name!r} has records that node {node!r} has not written",
                    hint=f'another app may write it: @app.derive("{node}", topic=...) names '
                    "another topic, or delete this one first",
                )
