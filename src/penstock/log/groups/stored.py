"""How groups and their offsets are written to the journal: JSON, each fact with its version."""

import json
from base64 import b64decode, b64encode
from typing import Any

from penstock.errors import LogError
from penstock.log.groups.group import Group
from penstock.log.groups.members import Member
from penstock.log.groups.offsets import Committed, TopicPartition

VERSION = 1

# Made once, as a commit takes two and a start all of them.
_encode = json.JSONEncoder(separators=(",", ":")).encode
_decode = json.JSONDecoder().decode


def group_key(group: str) -> bytes:
    return _dump(["group", group])


def offset_key(group: str, place: TopicPartition) -> bytes:
    return _dump(["offset", group, *place])


def read_key(key: bytes) -> tuple[str, TopicPartition | None]:
    """The group, and for an offset the place in which it was committed."""
    kind, group, *place = _load(key)
    return group, (place[0], place[1]) if kind == "offset" else None


def write_offset(committed: Committed) -> bytes:
    return _dump([VERSION, *committed])


def read_offset(fact: bytes) -> Committed:
    version, *fields = _load(fact)
    _check(version)
    return Committed._make(fields)


def write_group(group: Group) -> bytes:
    return _dump(
        {
            "version": VERSION,
            "generation": group.generation,
            "protocol_type": group.protocol_type,
            "protocol": group.protocol,
            "leader": group.members.leader,
            "empty_since_ms": group.empty_since_ms,
            "members": [
                {
                    "id": member.id,
                    "instance_id": member.instance_id,
                    "client_id": member.client_id,
                    "client_host": member.client_host,
                    "session_ms": member.session_ms,
                    "rebalance_ms": member.rebalance_ms,
                    "protocols": [[name, _text(part)] for name, part in member.protocols.items()],
                    "assignment": _text(member.assignment),
                }
                for member in group.members
            ],
        }
    )


def read_group(fact: bytes, group: Group) -> None:
    """Fills a fresh group with what was stored of it."""
    stored = _load(fact)
    _check(stored["version"])
    group.generation = stored["generation"]
    group.protocol_type = stored["protocol_type"]
    group.protocol = stored["protocol"]
    group.empty_since_ms = stored["empty_since_ms"]
    for fields in stored["members"]:
        protocols = {name: b64decode(part) for name, part in fields.pop("protocols")}
        assignment = b64decode(fields.pop("assignment"))
        group.members.add(Member(**fields, protocols=protocols, assignment=assignment))
    group.members.leader = stored["leader"]


def _check(version: int) -> None:
    if version != VERSION:
        raise LogError(
            f"the groups were stored in format {version}, and this penstock reads {VERSION}",
            hint="open the log with the version of penstock that wrote it, or a newer one",
        )


def _dump(fact: Any) -> bytes:
    return _encode(fact).encode()


def _load(fact: bytes) -> Any:
    return _decode(fact.decode())


def _text(part: bytes) -> str:
    return b64encode(part).decode()
