"""CreateTopics, DeleteTopics, CreatePartitions: the topics as an administrator handles them."""

from collections.abc import Callable
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.errors import PenstockError
from penstock.log.policy import TopicPolicy
from penstock.log.server.broker import NODE_ID, error_code
from penstock.log.server.call import Call, api
from penstock.log.topics import Topic

DEFAULT_CONFIG, TOPIC_CONFIG = 5, 1


def attempt(change: Callable[[], object]) -> dict[str, Any]:
    """Makes the change; the fields that tell how it went."""
    try:
        change()
    except PenstockError as refusal:
        return {"error_code": ErrorCode(error_code(refusal)), "error_message": str(refusal)}
    return {"error_code": ErrorCode.none, "error_message": None}


def _refused(code: ErrorCode, message: str) -> dict[str, Any]:
    return {"error_code": code, "error_message": message}


@api(19, "create_topics", 2, 7)
def create_topics(call: Call) -> Any:
    dry = call.request.validate_only
    return call.response(topics=tuple(_create(call, asked, dry) for asked in call.request.topics))


def _create(call: Call, asked: Any, dry: bool) -> Any:
    broker = call.broker
    count = len(asked.assignments) or asked.num_partitions
    if count == -1:
        count = broker.settings.partitions
    settings = {one.name: one.value or "" for one in asked.configs}
    made: list[Topic] = []
    outcome = _impossible(asked, count) or attempt(
        lambda: made.append(broker.topics.create(asked.name, count, settings, dry=dry))
    )
    topic = made[0] if made else None
    return call.entity(
        "CreatableTopicResult",
        name=asked.name,
        topic_id=topic.id if topic else None,
        num_partitions=count if topic else -1,
        replication_factor=1 if topic else -1,
        configs=_configs(call, topic.policy) if topic and call.version >= 5 else (),
        topic_config_error_code=0,
        **outcome,
    )


def _impossible(asked: Any, count: int) -> dict[str, Any] | None:
    """Why a topic of this shape cannot be, if it cannot."""
    if asked.assignments:
        if (asked.num_partitions, asked.replication_factor) != (-1, -1):
            return _refused(ErrorCode.invalid_request, "partitions are counted or placed, not both")
        indexes = sorted(one.partition_index for one in asked.assignments)
        if indexes != list(range(count)) or not _all_here(asked.assignments):
            return _refused(
                ErrorCode.invalid_replica_assignment,
                f"partitions are numbered from 0 without a gap, all on node {NODE_ID}",
            )
    elif asked.replication_factor not in (-1, 1):
        return _refused(
            ErrorCode.invalid_replication_factor,
            "there is one server, so the replication factor is 1",
        )
    elif count < 1:
        return _refused(ErrorCode.invalid_partitions, f"{count} partitions are not possible")
    return None


def _all_here(assignments: tuple[Any, ...]) -> bool:
    return all(one.broker_ids == (NODE_ID,) for one in assignments)


def _configs(call: Call, policy: TopicPolicy) -> tuple[Any, ...]:
    defaults = TopicPolicy().settings()
    return tuple(
        call.entity(
            "CreatableTopicConfigs",
            name=name,
            value=value,
            read_only=False,
            config_source=DEFAULT_CONFIG if value == defaults[name] else TOPIC_CONFIG,
            is_sensitive=False,
        )
        for name, value in policy.settings().items()
    )


@api(20, "delete_topics", 1, 6)
def delete_topics(call: Call) -> Any:
    if call.version >= 6:
        asked = [(one.name, one.topic_id) for one in call.request.topics]
    else:
        asked = [(name, None) for name in call.request.topic_names]
    return call.response(responses=tuple(_delete(call, name, key) for name, key in asked))


def _delete(call: Call, name: str | None, topic_id: Any) -> Any:
    topics = call.broker.topics
    if name is not None and topic_id is not None:
        both = _refused(ErrorCode.invalid_request, "a topic goes by its name or its id, not both")
        return call.entity("DeletableTopicResult", name=name, topic_id=topic_id, **both)
    if name is None:
        topic = topics.by_id(topic_id) if topic_id else None
        name = topic.name if topic else None
    outcome: dict[str, Any]
    if name is None:
        outcome = _refused(ErrorCode.unknown_topic_id, "no such topic id")
    else:
        topic = topics.find(name)
        topic_id = topic.id if topic else topic_id
        outcome = attempt(lambda: topics.delete(name or ""))
    return call.entity("DeletableTopicResult", name=name, topic_id=topic_id, **outcome)


@api(37, "create_partitions", 0, 3)
def create_partitions(call: Call) -> Any:
    dry = call.request.validate_only
    return call.response(results=tuple(_grow(call, asked, dry) for asked in call.request.topics))


def _grow(call: Call, asked: Any, dry: bool) -> Any:
    topics, placed = call.broker.topics, asked.assignments
    topic = topics.find(asked.name)
    more = asked.count - len(topic.partitions) if topic else 0
    if placed is not None and more > 0 and (len(placed) != more or not _all_here(placed)):
        outcome = _refused(
            ErrorCode.invalid_replica_assignment,
            f"{more} partitions are added, each on node {NODE_ID}",
        )
    else:
        outcome = attempt(lambda: topics.add_partitions(asked.name, asked.count, dry=dry))
    if outcome["error_code"] == ErrorCode.invalid_request:
        outcome["error_code"] = ErrorCode.invalid_partitions
    return call.entity("CreatePartitionsTopicResult", name=asked.name, **outcome)
