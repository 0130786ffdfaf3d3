"""CreateTopics, DeleteTopics, CreatePartitions: the topics as an administrator handles them."""

from collections.abc import Callable
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.errors import PenstockError
from penstock.log.policy import TopicPolicy
from penstock.log.server.broker import error_code
from penstock.log.server.call import Call, api

DEFAULT_CONFIG, TOPIC_CONFIG = 5, 1
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38


def attempt(change: Callable[[], object]) -> dict[str, Any]:
    """Makes the change; the fields that tell how it went."""
    try:
        change()
    except PenstockError as refusal:
        return {"error_code": ErrorCode(error_code(refusal)), "error_message": str(refusal)}
    return {"error_code": ErrorCode.none, "error_message": None}


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
    if asked.replication_factor not in (-1, 1):
        outcome = {
            "error_code": ErrorCode(INVALID_REPLICATION_FACTOR),
            "error_message": "there is one server, so the replication factor is 1",
        }
    elif count < 1:
        outcome = {
            "error_code": ErrorCode(INVALID_PARTITIONS),
            "error_message": f"{count} partitions are not possible",
        }
    else:
        outcome = attempt(lambda: broker.topics.create(asked.name, count, settings, dry=dry))
    topic = None if outcome["error_code"] else broker.topics.find(asked.name)
    policy = topic.policy if topic else None
    return call.entity(
        "CreatableTopicResult",
        name=asked.name,
        topic_id=topic.id if topic else None,
        num_partitions=len(topic.partitions) if topic else -1,
        replication_factor=1 if topic else -1,
        configs=_configs(call, policy) if policy and call.version >= 5 else None,
        topic_config_error_code=0,
        **outcome,
    )


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
    if name is None:
        topic = topics.by_id(topic_id) if topic_id else None
        name = topic.name if topic else None
    outcome: dict[str, Any]
    if name is None:
        outcome = {"error_code": ErrorCode.unknown_topic_id, "error_message": "no such topic id"}
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
    topics = call.broker.topics
    outcome = attempt(lambda: topics.add_partitions(asked.name, asked.count, dry=dry))
    if outcome["error_code"] == ErrorCode.invalid_request:
        outcome["error_code"] = ErrorCode(INVALID_PARTITIONS)
    return call.entity("CreatePartitionsTopicResult", name=asked.name, **outcome)
