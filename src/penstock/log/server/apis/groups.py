"""Group membership on the wire: finding the coordinator, joining, staying, leaving, looking."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from kio.schema.errors import ErrorCode

from penstock.log.groups.group import Group, State
from penstock.log.groups.messages import Join, JoinAnswer, Sync, SyncAnswer
from penstock.log.server.call import Call, api

Answer = TypeVar("Answer")

GROUP, TRANSACTION = 0, 1
# Clients ask again and again after most errors; the first of these ends their attempt.
NO_TRANSACTIONS = (
    ErrorCode.transactional_id_authorization_failed,
    "this log has no transactions yet: leave out transactional.id",
)
NO_SUCH_KIND = (ErrorCode.invalid_request, "this log coordinates groups only")
CLASSIC = "classic"
# Reading, deleting and describing, as bits: there are no rights to lack.
EVERY_OPERATION = 1 << 3 | 1 << 6 | 1 << 8
_MILLISECOND = timedelta(milliseconds=1)


def ask(put: Callable[[Callable[[Answer], None]], None]) -> asyncio.Future[Answer]:
    """Puts a question to the coordinator now, so that the requests of a client keep their order.

    `put` gets the callback for the answer, which may be called at once or later.
    """
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def answer(given: Answer) -> None:
        if not future.done():  # The client may have gone meanwhile.
            future.set_result(given)

    put(answer)
    return future


@api(10, "find_coordinator", 0, 6)
def find_coordinator(call: Call) -> Any:
    host, port = call.broker.advertised
    found: dict[str, Any] = {"error_code": ErrorCode.none, "error_message": None}
    found |= {"node_id": call.broker.node_id, "host": host, "port": port}
    kind = getattr(call.request, "key_type", GROUP)
    if kind != GROUP:
        error, why = NO_TRANSACTIONS if kind == TRANSACTION else NO_SUCH_KIND
        found = {"error_code": error, "error_message": why, "node_id": -1, "host": "", "port": -1}
    if call.version < 4:
        return call.response(**found)
    keys = call.request.coordinator_keys
    return call.response(
        coordinators=tuple(call.entity("Coordinator", key=key, **found) for key in keys)
    )


@api(11, "join_group", 0, 9)
def join_group(call: Call) -> Awaitable[Any]:
    request = call.request
    session_ms = request.session_timeout // _MILLISECOND
    # Older clients do not name it, and -1 is its default on the wire.
    rebalance_ms = getattr(request, "rebalance_timeout", -_MILLISECOND) // _MILLISECOND
    join = Join(
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        client_id=call.client_id,
        client_host=call.client_host,
        session_ms=session_ms,
        rebalance_ms=rebalance_ms if rebalance_ms >= 0 else session_ms,
        protocol_type=request.protocol_type,
        protocols={each.name: each.metadata for each in request.protocols},
        takes_id=call.version >= 4,
        skips_assignment=call.version >= 9,
    )
    groups = call.broker.groups
    return _joined(call, ask(partial(groups.join, request.group_id, join)))


async def _joined(call: Call, answer: Awaitable[JoinAnswer]) -> Any:
    joined = await answer
    return call.response(
        error_code=joined.error,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol if call.version >= 7 else joined.protocol or "",
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=tuple(
            call.entity(
                "JoinGroupResponseMember",
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.part,
            )
            for member in joined.members
        ),
    )


@api(14, "sync_group", 0, 5)
def sync_group(call: Call) -> Any | Awaitable[Any]:
    request = call.request
    if call.version >= 5 and None in (request.protocol_type, request.protocol_name):
        # Since it can be said, it must be.
        return call.response(error_code=ErrorCode.inconsistent_group_protocol, assignment=b"")
    sync = Sync(
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id,
        assignments={each.member_id: each.assignment for each in request.assignments},
        protocol_type=getattr(request, "protocol_type", None),
        protocol=getattr(request, "protocol_name", None),
    )
    groups = call.broker.groups
    return _synced(call, ask(partial(groups.sync, request.group_id, sync)))


async def _synced(call: Call, answer: Awaitable[SyncAnswer]) -> Any:
    synced = await answer
    return call.response(
        error_code=synced.error,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )


@api(12, "heartbeat", 0, 4)
def heartbeat(call: Call) -> Any:
    request = call.request
    instance_id = getattr(request, "group_instance_id", None)
    error = call.broker.groups.heartbeat(
        request.group_id, request.member_id, instance_id, request.generation_id
    )
    return call.response(error_code=error)


@api(13, "leave_group", 0, 5)
def leave_group(call: Call) -> Any:
    request = call.request
    if call.version < 3:
        error, errors = call.broker.groups.leave(request.group_id, [(request.member_id, None)])
        return call.response(error_code=errors[0] if errors else error)
    leaving = [(each.member_id, each.group_instance_id) for each in request.members]
    error, errors = call.broker.groups.leave(request.group_id, leaving)
    return call.response(
        error_code=error,
        members=tuple(
            call.entity(
                "MemberResponse",
                member_id=member_id,
                group_instance_id=instance_id,
                error_code=member_error,
            )
            for (member_id, instance_id), member_error in zip(leaving, errors, strict=bool(errors))
        ),
    )


@api(16, "list_groups", 0, 5)
def list_groups(call: Call) -> Any:
    states = {state.lower() for state in getattr(call.request, "states_filter", ())}
    types = {kind.lower() for kind in getattr(call.request, "types_filter", ())}
    return call.response(
        error_code=ErrorCode.none,
        groups=tuple(
            call.entity(
                "ListedGroup",
                group_id=group.name,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=CLASSIC,
            )
            for group in call.broker.groups.groups()
            if (not states or group.state.lower() in states) and (not types or CLASSIC in types)
        ),
    )


@api(15, "describe_groups", 0, 6)
def describe_groups(call: Call) -> Any:
    return call.response(groups=tuple(_describe(call, name) for name in call.request.groups))


def _describe(call: Call, name: str) -> Any:
    group = call.broker.groups.find(name)
    if group is None:
        missing = call.version >= 6
        return call.entity(
            "DescribedGroup",
            error_code=ErrorCode.group_id_not_found if missing else ErrorCode.none,
            error_message=f"there is no group {name!r}" if missing else None,
            group_id=name,
            group_state=State.DEAD.value,
            protocol_type="",
            protocol_data="",
            members=(),
        )
    allowed = {}
    if getattr(call.request, "include_authorized_operations", False):
        allowed["authorized_operations"] = EVERY_OPERATION
    # Before it is stable, what members subscribed to and were assigned does not hold yet.
    protocol = group.protocol if group.state is State.STABLE else None
    return call.entity(
        "DescribedGroup",
        error_code=ErrorCode.none,
        error_message=None,
        group_id=name,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=_described_members(call, group, protocol),
        **allowed,
    )


def _described_members(call: Call, group: Group, protocol: str | None) -> tuple[Any, ...]:
    return tuple(
        call.entity(
            "DescribedGroupMember",
            member_id=member.id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.protocols[protocol] if protocol else b"",
            member_assignment=member.assignment if protocol else b"",
        )
        for member in group.members
    )


@api(42, "delete_groups", 0, 2)
def delete_groups(call: Call) -> Awaitable[Any]:
    groups = call.broker.groups
    names = call.request.groups_names
    return _deleted(call, {name: ask(partial(groups.delete, name)) for name in names})


async def _deleted(call: Call, answers: dict[str, asyncio.Future[ErrorCode]]) -> Any:
    return call.response(
        results=tuple(
            [
                call.entity("DeletableGroupResult", group_id=name, error_code=await answer)
                for name, answer in answers.items()
            ]
        )
    )
