"""Metadata, DescribeCluster, DescribeTopicPartitions: who serves what."""

from typing import Any

from kio.schema.errors import ErrorCode

from penstock.errors import PenstockError
from penstock.log.policy import check_topic_name
from penstock.log.server.broker import NODE_ID, Broker, error_code
from penstock.log.server.call import Call, api
from penstock.log.topics import Topic

NO_OPERATIONS = -(2**31)  # authorised operations were not asked for
MAX_DESCRIBED_PARTITIONS = 2000


def _host(broker: Broker) -> dict[str, Any]:
    host, port = broker.advertised
    return {"host": host, "port": port, "rack": None, "is_fenced": False}


def _partitions(call: Call, kind: str, topic: Topic | None, first: int = 0) -> tuple[Any, ...]:
    return tuple(
        call.entity(
            kind,
            error_code=ErrorCode.none,
            partition_index=index,
            leader_id=NODE_ID,
            leader_epoch=0,
            replica_nodes=(NODE_ID,),
            isr_nodes=(NODE_ID,),
            eligible_leader_replicas=(),  # may be null on the wire, but not to Kafka's own tools
            last_known_elr=(),
            offline_replicas=(),
        )
        for index in range(first, len(topic.partitions) if topic else 0)
    )


@api(3, "metadata", 0, 13)
def metadata(call: Call) -> Any:
    broker, asked = call.broker, call.request.topics
    # In version 0 an empty list asks for all topics, later null does.
    if asked is None or (call.version == 0 and not asked):
        topics = [_topic(call, topic.name, topic, 0) for topic in broker.topics.all()]
    else:
        topics = [_asked_topic(call, one) for one in asked]
    return call.response(
        brokers=(call.entity("MetadataResponseBroker", node_id=NODE_ID, **_host(broker)),),
        cluster_id=broker.cluster_id,
        controller_id=NODE_ID,
        topics=tuple(topics),
        error_code=ErrorCode.none,
        cluster_authorized_operations=NO_OPERATIONS,
    )


def _asked_topic(call: Call, asked: Any) -> Any:
    topics, topic_id = call.broker.topics, getattr(asked, "topic_id", None)
    if asked.name is None:
        topic = topics.by_id(topic_id) if topic_id else None
        unknown = ErrorCode.unknown_topic_id if topic is None else ErrorCode.none
        return _topic(call, topic.name if topic else None, topic, unknown, topic_id)
    topic = topics.find(asked.name)
    error = 0
    if topic is None:
        try:
            check_topic_name(asked.name)
            may_create = getattr(call.request, "allow_auto_topic_creation", True)
            topic = (call.broker.find_or_create if may_create else topics.get)(asked.name)
        except PenstockError as refusal:
            error = error_code(refusal)
    return _topic(call, asked.name, topic, error)


def _topic(
    call: Call, name: str | None, topic: Topic | None, error: int, topic_id: Any = None
) -> Any:
    if name is None and call.version < 12:
        name = ""
    return call.entity(
        "MetadataResponseTopic",
        error_code=ErrorCode(error),
        name=name,
        topic_id=topic.id if topic else topic_id,
        is_internal=False,
        partitions=_partitions(call, "MetadataResponsePartition", topic),
        topic_authorized_operations=NO_OPERATIONS,
    )


@api(60, "describe_cluster", 0, 2)
def describe_cluster(call: Call) -> Any:
    broker = call.broker
    return call.response(
        error_code=ErrorCode.none,
        error_message=None,
        endpoint_type=getattr(call.request, "endpoint_type", 1),
        cluster_id=broker.cluster_id,
        controller_id=NODE_ID,
        brokers=(call.entity("DescribeClusterBroker", broker_id=NODE_ID, **_host(broker)),),
        cluster_authorized_operations=NO_OPERATIONS,
    )


@api(75, "describe_topic_partitions", 0, 0)
def describe_topic_partitions(call: Call) -> Any:
    """Pages through the partitions of the topics asked for (all when none is), in name order."""
    broker, request = call.broker, call.request
    names = sorted({topic.name for topic in request.topics}) or broker.topics.names()
    cursor = request.cursor
    room = min(max(request.response_partition_limit, 1), MAX_DESCRIBED_PARTITIONS)
    topics, after = [], None
    for name in names:
        if cursor is not None and name < cursor.topic_name:
            continue
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        if room <= 0:
            after = call.entity("Cursor", topic_name=name, partition_index=0)
            break
        topic = broker.topics.find(name)
        partitions = _partitions(call, "DescribeTopicPartitionsResponsePartition", topic, first)
        topics.append(
            call.entity(
                "DescribeTopicPartitionsResponseTopic",
                error_code=ErrorCode.none if topic else ErrorCode.unknown_topic_or_partition,
                name=name,
                topic_id=topic.id if topic else None,
                is_internal=False,
                partitions=partitions[:room],
                topic_authorized_operations=NO_OPERATIONS,
            )
        )
        if len(partitions) > room:
            after = call.entity("Cursor", topic_name=name, partition_index=first + room)
            break
        room -= len(partitions)
    return call.response(topics=tuple(topics), next_cursor=after)
