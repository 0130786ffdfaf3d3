"""What operators ask of groups: which there are, who is in them, to move them, to delete them."""

from collections.abc import Mapping
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from penstock.errors import GroupNotEmpty, GroupNotFound, LogError, StorageFailed
from penstock.log.groups.consumer_protocol import assigned_partitions
from penstock.log.groups.coordinator import Coordinator
from penstock.log.groups.group import Done, State
from penstock.log.groups.offsets import Committed, TopicPartition


@dataclass(frozen=True, slots=True)
class MemberDetails:
    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDetails:
    name: str
    state: str
    protocol: str
    generation: int
    members: tuple[MemberDetails, ...]


def group_names(groups: Coordinator) -> list[str]:
    return sorted(group.name for group in groups.groups())


def describe_group(groups: Coordinator, name: str) -> GroupDetails:
    """Raises GroupNotFound. During a rebalance, members have no partitions."""
    group = groups.find(name)
    if group is None:
        raise _not_found(name)
    return GroupDetails(
        name=name,
        state=group.state.value,
        protocol=group.protocol or "",
        generation=group.generation,
        members=tuple(
            MemberDetails(
                member.id,
                member.instance_id,
                member.client_id,
                member.client_host,
                assigned_partitions(member.assignment) if group.state is State.STABLE else (),
            )
            for member in group.members
        ),
    )


def committed_offsets(groups: Coordinator, name: str) -> dict[TopicPartition, int]:
    """The group's next offsets; none when it has not committed or does not exist."""
    return {place: committed.offset for place, committed in groups.offsets.of(name).items()}


def commit_offsets(
    groups: Coordinator, name: str, offsets: Mapping[TopicPartition, int], done: Done
) -> None:
    """Sets the next offsets of a group without members; the caller has made sure of the topics.

    `done` is called on this thread, with None once they are durable, else with GroupNotEmpty,
    StorageFailed or another LogError.
    """

    def answered(errors: dict[TopicPartition, ErrorCode]) -> None:
        error = next((each for each in errors.values() if each is not ErrorCode.none), None)
        done(None if error is None else _refused(name, error))

    groups.commit(name, {at: Committed(offset) for at, offset in offsets.items()}, answered)


def delete_group(groups: Coordinator, name: str, done: Done) -> None:
    """Forgets a group and its offsets; `done` as for commits, or with GroupNotFound."""
    groups.delete(
        name, lambda error: done(None if error is ErrorCode.none else _refused(name, error))
    )


def _refused(name: str, error: ErrorCode) -> LogError:
    match error:
        case ErrorCode.group_id_not_found:
            return _not_found(name)
        case ErrorCode.unknown_member_id | ErrorCode.non_empty_group:
            return GroupNotEmpty(f"group {name!r} has members", hint="stop its consumers first")
        case ErrorCode.kafka_storage_error:
            return StorageFailed(
                f"the disk refused what group {name!r} was to keep",
                hint="look at the disk's space and health, then open the log again",
            )
        case _:
            return LogError(f"group {name!r} was refused this: {error.name.replace('_', ' ')}")


def _not_found(name: str) -> GroupNotFound:
    return GroupNotFound(
        f"there is no group {name!r}", hint="see `penstock groups` for those there are"
    )
