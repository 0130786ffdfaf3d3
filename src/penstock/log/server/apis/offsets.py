"""Committed offsets on the wire: setting them, asking for them, forgetting them."""

from collections.abc import Awaitable, Iterable
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.log.groups.coordinator import Errors
from penstock.log.groups.offsets import Committed, TopicPartition
from penstock.log.server.apis.groups import ask
from penstock.log.server.call import Call, api

NOT_COMMITTED = Committed(-1)


@api(8, "offset_commit", 2, 9)
def offset_commit(call: Call) -> Any | Awaitable[Any]:
    request = call.request
    wanted = {
        (topic.name, partition.partition_index): Committed(
            offset=partition.committed_offset,
            leader_epoch=getattr(partition, "committed_leader_epoch", -1),
            note=partition.committed_metadata or "",
        )
        for topic in request.topics
        for partition in topic.partitions
    }
    unknown = _unknown(call, wanted)
    known = {place: committed for place, committed in wanted.items() if place not in unknown}
    if not known:
        return _committed(call, unknown)
    groups = call.broker.groups
    answer = ask(
        partial(
            groups.commit,
            request.group_id,
            known,
            member_id=request.member_id,
            instance_id=getattr(request, "group_instance_id", None),
            generation=request.generation_id_or_member_epoch,
        )
    )

    async def response() -> Any:
        return _committed(call, unknown | await answer)

    return response()


def _committed(call: Call, errors: Errors) -> Any:
    if call.version < 9:
        # Older clients do not know of groups that are not there.
        older = {ErrorCode.group_id_not_found: ErrorCode.illegal_generation}
        errors = {place: older.get(error, error) for place, error in errors.items()}
    return call.response(topics=_topics(call, "OffsetCommitResponse", errors))


@api(9, "offset_fetch", 1, 9)
def offset_fetch(call: Call) -> Any:
    request = call.request
    if call.version < 8:
        return call.response(topics=_fetched(call, request, ""), error_code=ErrorCode.none)
    return call.response(
        groups=tuple(
            call.entity(
                "OffsetFetchResponseGroup",
                group_id=group.group_id,
                topics=_fetched(call, group, "s"),
                error_code=ErrorCode.none,
            )
            for group in request.groups
        )
    )


def _fetched(call: Call, request: Any, plural: str) -> tuple[Any, ...]:
    """The offsets of one group; without topics in the request, all that it has."""
    offsets = call.broker.groups.offsets
    if request.topics is None:
        found: dict[TopicPartition, Committed] = offsets.of(request.group_id)
    else:
        found = {
            (topic.name, partition): offsets.get(request.group_id, topic.name, partition)
            or NOT_COMMITTED
            for topic in request.topics
            for partition in topic.partition_indexes
        }
    topics: dict[str, list[Any]] = {}
    for (topic, partition), committed in found.items():
        topics.setdefault(topic, []).append(
            call.entity(
                f"OffsetFetchResponsePartition{plural}",
                partition_index=partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                metadata=committed.note,
                error_code=ErrorCode.none,
            )
        )
    return tuple(
        call.entity(f"OffsetFetchResponseTopic{plural}", name=topic, partitions=tuple(partitions))
        for topic, partitions in topics.items()
    )


@api(47, "offset_delete", 0, 0)
def offset_delete(call: Call) -> Awaitable[Any]:
    request = call.request
    places = [
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    unknown = _unknown(call, places)
    known = [place for place in places if place not in unknown]
    answer = ask(partial(call.broker.groups.drop_offsets, request.group_id, known))

    async def response() -> Any:
        error, errors = await answer
        topics = () if error else _topics(call, "OffsetDeleteResponse", unknown | errors)
        return call.response(error_code=error, topics=topics)

    return response()


def _unknown(call: Call, places: Iterable[TopicPartition]) -> Errors:
    """An error for each place that is in no topic of this log."""
    errors: Errors = {}
    for name, partition in places:
        topic = call.broker.topics.find(name)
        if topic is None or not 0 <= partition < len(topic.partitions):
            errors[name, partition] = ErrorCode.unknown_topic_or_partition
    return errors


def _topics(call: Call, response: str, errors: Errors) -> tuple[Any, ...]:
    topics: dict[str, list[Any]] = {}
    for (topic, partition), error in errors.items():
        topics.setdefault(topic, []).append(
            call.entity(f"{response}Partition", partition_index=partition, error_code=error)
        )
    return tuple(
        call.entity(f"{response}Topic", name=topic, partitions=tuple(partitions))
        for topic, partitions in topics.items()
    )
