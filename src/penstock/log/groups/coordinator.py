"""All groups of a log: who asks for which, what of them is durable, and what is forgotten.

Everything here runs on one thread, the event loop's. Answers are given by calling back, those about
commits and assignments only once the journal has them on disk.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from penstock import clock
from penstock.errors import LogError
from penstock.log.groups.consumer_protocol import CONSUMER
from penstock.log.groups.group import Done, Group, State
from penstock.log.groups.members import Schedule
from penstock.log.groups.messages import Join, JoinAnswer, OnJoin, OnSync, Sync, SyncAnswer
from penstock.log.groups.offsets import Committed, Offsets, TopicPartition
from penstock.log.groups.retention import outlived, subscription
from penstock.log.groups.settings import GroupSettings
from penstock.log.groups.stored import (
    group_key,
    offset_key,
    read_group,
    read_key,
    read_offset,
    write_group,
    write_offset,
)
from penstock.log.storage.journal import Journal

Post = Callable[..., Any]
Errors = dict[TopicPartition, ErrorCode]


class Coordinator:
    def __init__(
        self,
        journal: Journal,
        *,
        schedule: Schedule,
        post: Post,
        settings: GroupSettings | None = None,
    ) -> None:
        """Loads the groups, and gives every member a whole session to show that it lives.

        `schedule(seconds, callback)` calls back on this thread; `post(callback, *arguments)`, asked
        from any thread, does so as well, soon. An event loop's `call_later` and
        `call_soon_threadsafe` are such.
        """
        self.settings = settings or GroupSettings()
        self._journal = journal
        self._schedule = schedule
        self._post = post
        self._groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self.unreadable = 0
        """Facts in the journal that were none of a group, and have been set aside."""
        self._load()
        self._sweep_later()

    def _load(self) -> None:
        for key, fact in list(self._journal.items()):
            try:
                self._read(key, fact)
            except (ValueError, KeyError, TypeError, AttributeError) as broken:
                # One group's trouble is not that of the others.
                self._journal.set_aside(key, repr(broken))
                self.unreadable += 1
        for name in self.offsets.groups():
            if name not in self._groups:
                self._add(name)
        for group in self._groups.values():
            group.resume()

    def _read(self, key: bytes, fact: bytes) -> None:
        name, place = read_key(key)
        if place is not None:
            self.offsets.set(name, {place: read_offset(fact)})
            return
        try:
            read_group(fact, self._add(name))
        except BaseException:
            del self._groups[name]  # half of it may be filled in
            raise

    def _add(self, name: str) -> Group:
        group = self._groups[name] = Group(
            name, schedule=self._schedule, save=self._save, settings=self.settings
        )
        return group

    def _save(self, group: Group, done: Done) -> None:
        self._put({group_key(group.name): write_group(group)}, done)

    def _put(self, entries: Mapping[bytes, bytes | None], done: Done) -> bool:
        """Whether the journal took them; `done` hears of the disk in either case."""
        try:
            self._journal.put(entries, lambda error: self._post(done, error))
        except LogError as refused:
            self._post(done, refused)
            return False
        return True

    def close(self) -> None:
        self._sweep_timer.cancel()
        for group in self._groups.values():
            group.close()

    # Members

    def find(self, name: str) -> Group | None:
        return self._groups.get(name)

    def groups(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def join(self, name: str, join: Join, answer: OnJoin) -> None:
        settings = self.settings
        group = self._groups.get(name)
        error = ErrorCode.none
        if not name:
            error = ErrorCode.invalid_group_id
        elif not settings.min_session_ms <= join.session_ms <= settings.max_session_ms:
            error = ErrorCode.invalid_session_timeout
        elif join.size > settings.max_member_bytes:
            error = ErrorCode.message_too_large
        elif group is None and join.member_id:
            error = ErrorCode.unknown_member_id
        elif group is None and len(self._groups) >= settings.max_groups:
            error = ErrorCode.group_max_size_reached
        if error is not ErrorCode.none:
            answer(JoinAnswer(error, join.member_id))
        else:
            (group or self._add(name)).join(join, answer)

    def sync(self, name: str, sync: Sync, answer: OnSync) -> None:
        group = self._groups.get(name)
        if group is None:
            answer(SyncAnswer(_missing(name)))
        else:
            group.sync(sync, answer)

    def heartbeat(
        self, name: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        group = self._groups.get(name)
        return group.heartbeat(member_id, instance_id, generation) if group else _missing(name)

    def leave(
        self, name: str, leaving: list[tuple[str, str | None]]
    ) -> tuple[ErrorCode, list[ErrorCode]]:
        """One error for the whole, and without it one for each that leaves, in order."""
        if not name:
            return ErrorCode.invalid_group_id, []
        group = self._groups.get(name)
        unknown = [ErrorCode.unknown_member_id] * len(leaving)
        return ErrorCode.none, group.leave(leaving) if group else unknown

    # Offsets

    def commit(
        self,
        name: str,
        offsets: Mapping[TopicPartition, Committed],
        answer: Callable[[Errors], None],
        *,
        member_id: str = "",
        instance_id: str | None = None,
        generation: int = -1,
    ) -> None:
        """Sets the group's offsets in topics that exist; without a member, if the group has none.

        A group that is not there is made when no member is given. Each offset gets its own error.
        """
        error = self._check_commit(name, member_id, instance_id, generation)
        errors = dict.fromkeys(offsets, error)
        if error is ErrorCode.none:
            errors = {place: self._check_offset(each) for place, each in offsets.items()}
        at_ms = clock.now_ms()
        accepted = {
            place: committed._replace(at_ms=at_ms)
            for place, committed in offsets.items()
            if errors[place] is ErrorCode.none
        }
        if not accepted:
            answer(errors)
            return
        entries = {offset_key(name, place): write_offset(each) for place, each in accepted.items()}

        def stored(failure: Exception | None) -> None:
            if failure is not None:
                errors.update(dict.fromkeys(accepted, ErrorCode.kafka_storage_error))
            answer(errors)

        if self._put(entries, stored):
            # As in the journal: seen now, answered when it is durable. Who goes on from an offset
            # that a crash then takes back skips nothing: what is before it has been processed.
            self.offsets.set(name, accepted)
            if name not in self._groups:
                self._add(name)

    def _check_commit(
        self, name: str, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        group = self._groups.get(name)
        if not name:
            return ErrorCode.invalid_group_id
        if group is not None:
            return group.check_commit(member_id, instance_id, generation)
        if generation >= 0:
            return ErrorCode.group_id_not_found
        full = len(self._groups) >= self.settings.max_groups
        return ErrorCode.policy_violation if full else ErrorCode.none

    def _check_offset(self, committed: Committed) -> ErrorCode:
        if len(committed.note) > self.settings.max_note:
            return ErrorCode.offset_metadata_too_large
        return ErrorCode.offset_out_of_range if committed.offset < 0 else ErrorCode.none

    def drop_offsets(
        self,
        name: str,
        places: Iterable[TopicPartition],
        answer: Callable[[tuple[ErrorCode, Errors]], None],
    ) -> None:
        """Forgets committed offsets, except in topics that the group's members read.

        The answer is one error for the whole, or none and one for each place.
        """
        group = self._groups.get(name)
        if group is None:
            answer((_not_found(name), {}))
            return
        if group.state is not State.EMPTY and group.protocol_type != CONSUMER:
            answer((ErrorCode.non_empty_group, {}))
            return
        read = subscription(group)
        errors = {
            place: ErrorCode.group_subscribed_to_topic
            if read is None or place[0] in read
            else ErrorCode.none
            for place in places
        }
        free = [place for place, error in errors.items() if error is ErrorCode.none]

        def stored(failure: Exception | None) -> None:
            if failure is not None:
                errors.update(dict.fromkeys(free, ErrorCode.kafka_storage_error))
            answer((ErrorCode.none, errors))

        self._forget(
            [(name, place) for place in free if self.offsets.get(name, *place)], (), stored
        )

    # Forgetting

    def delete(self, name: str, answer: Callable[[ErrorCode], None]) -> None:
        """Forgets a group without members, and its offsets."""
        group = self._groups.get(name)
        if group is None:
            answer(_not_found(name))
        elif group.state is not State.EMPTY:
            answer(ErrorCode.non_empty_group)
        else:
            places = [(name, place) for place in self.offsets.of(name)]
            self._forget(
                places,
                (group,),
                lambda failure: answer(
                    ErrorCode.none if failure is None else ErrorCode.kafka_storage_error
                ),
            )

    def forget_topic(self, topic: str) -> None:
        """Drops what every group committed in a topic that is no more."""
        self._forget(self.offsets.of_topic(topic), (), lambda failure: None)

    def keep_topics(self, existing: Container[str]) -> None:
        """Forgets all other topics: after a start, those whose deletion a crash cut short."""
        for topic in self.offsets.topics():
            if topic not in existing:
                self.forget_topic(topic)

    def _sweep_later(self) -> None:
        self._sweep_timer = self._schedule(self.settings.retention_check_ms / 1_000, self._sweep)

    def _sweep(self) -> None:
        """Forgets the offsets whose time is over, and the groups that have nothing left."""
        before_ms = clock.now_ms() - self.settings.retention_ms
        places: list[tuple[str, TopicPartition]] = []
        idle: list[Group] = []
        for group in self._groups.values():
            held = self.offsets.of(group.name)
            over = outlived(group, held, before_ms)
            places += [(group.name, place) for place in over]
            if group.idle and len(over) == len(held):
                idle.append(group)
        self._forget(places, idle, lambda failure: None)
        self._sweep_later()

    def _forget(
        self, places: list[tuple[str, TopicPartition]], groups: Iterable[Group], done: Done
    ) -> None:
        entries: dict[bytes, bytes | None] = {offset_key(*place): None for place in places}
        entries |= {group_key(group.name): None for group in groups}
        if not entries:
            done(None)
        elif self._put(entries, done):
            for name, place in places:
                self.offsets.drop(name, place)
            for group in groups:
                del self._groups[group.name]
                group.close()


def _missing(name: str) -> ErrorCode:
    return ErrorCode.unknown_member_id if name else ErrorCode.invalid_group_id


def _not_found(name: str) -> ErrorCode:
    return ErrorCode.group_id_not_found if name else ErrorCode.invalid_group_id
