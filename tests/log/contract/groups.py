"""How consumer groups behave in every log."""

from collections import Counter
from contextlib import suppress
from threading import Thread

import pytest

from penstock.errors import (
    GroupNotEmpty,
    GroupNotFound,
    InvalidInput,
    LogClosed,
    TopicNotFound,
)
from penstock.events.record import Record
from penstock.log.client.subscription import Subscription
from penstock.log.contract import GroupLag, Log
from penstock.testing import wait_until


def numbered(first: int, end: int, *, partition: int | None = None) -> list[Record]:
    return [Record(value=b"%d" % number, partition=partition) for number in range(first, end)]


def numbers(records: list[Record]) -> list[int]:
    return [int(record.value or b"-1") for record in records]


def take(member: Subscription, count: int) -> list[int]:
    """The numbers of exactly so many records."""
    records: list[Record] = []

    def enough() -> bool:
        records.extend(member.poll(0.1))
        return len(records) >= count

    wait_until(enough, within=20, what=f"{count} records")
    assert len(records) == count
    return numbers(records)


def joined(member: Subscription, partitions: int) -> bool:
    """Whether the member holds so many partitions; it must not be given any records meanwhile."""
    assert member.poll(0.05) == []
    return len(member.assignment) == partitions


class GroupsContract:
    def test_a_lone_member_reads_everything(self, log: Log, topic: str, group: str) -> None:
        log.create(topic, partitions=3)
        positions = log.append(topic, [Record(key=b"%d" % n, value=b"%d" % n) for n in range(60)])
        with log.subscribe(group, [topic]) as member:
            read = list(member.until_end())
            assert member.assignment == {(topic, 0), (topic, 1), (topic, 2)}
        assert sorted(record.position for record in read) == sorted(positions)
        for partition in range(3):
            offsets = [r.offset for r in read if r.partition == partition]
            assert offsets == list(range(len(offsets)))

    def test_a_member_waits_for_more(self, log: Log, topic: str, group: str) -> None:
        log.create(topic)
        with log.subscribe(group, [topic]) as member:
            assert list(member.until_end()) == []
            for number in range(3):
                log.append(topic, numbered(number, number + 1))
                assert next(member).value == b"%d" % number
            assert member.poll(0) == []

    def test_records_come_whole(self, log: Log, topic: str, group: str) -> None:
        log.create(topic)
        sent = Record(key=b"k", value=None, headers=(("a", None), ("a", b"")), timestamp=5_000)
        log.append(topic, [sent])
        with log.subscribe(group, [topic]) as member:
            got = next(member)
        assert got.position == (topic, 0, 0)
        assert (got.key, got.value, got.headers, got.timestamp) == (
            *(sent.key, sent.value, sent.headers, sent.timestamp),
        )

    def test_a_group_reads_several_topics(self, log: Log, topic: str, group: str) -> None:
        for name in ("a", "b"):
            log.create(f"{topic}-{name}", partitions=2)
            log.append(f"{topic}-{name}", [Record(value=name.encode(), partition=1)])
        with log.subscribe(group, [f"{topic}-a", f"{topic}-b"]) as member:
            assert sorted(record.value or b"" for record in member.until_end()) == [b"a", b"b"]
            assert len(member.assignment) == 4

    def test_a_group_needs_topics_that_exist(self, log: Log, topic: str, group: str) -> None:
        log.create(topic)
        with pytest.raises(TopicNotFound, match=f"{topic}-missing"):
            log.subscribe(group, [topic, f"{topic}-missing"])
        with pytest.raises(InvalidInput):
            log.subscribe(group, [])
        with pytest.raises(InvalidInput):
            log.subscribe("", [topic])

    def test_a_group_goes_on_where_it_has_committed(self, log: Log, topic: str, group: str) -> None:
        log.create(topic)
        log.append(topic, numbered(0, 10))
        member = log.subscribe(group, [topic])
        assert [next(member).offset for _ in range(4)] == [0, 1, 2, 3]
        member.commit()
        assert [next(member).offset for _ in range(2)] == [4, 5]
        member.close()
        with log.subscribe(group, [topic]) as member:
            assert numbers(list(member.until_end())) == [4, 5, 6, 7, 8, 9]

    def test_the_end_of_a_block_commits(self, log: Log, topic: str, group: str) -> None:
        log.create(topic)
        log.append(topic, numbered(0, 10))
        with log.subscribe(group, [topic]) as member:
            assert [next(member).offset for _ in range(3)] == [0, 1, 2]
        with suppress(ZeroDivisionError), log.subscribe(group, [topic]) as member:
            assert next(member).offset == 3
            raise ZeroDivisionError
        with log.subscribe(group, [topic]) as member:
            assert next(member).offset == 3

    def test_groups_are_independent(self, log: Log, topic: str, group: str) -> None:
        log.create(topic)
        log.append(topic, numbered(0, 3))
        for name in ("a", "b"):
            with log.subscribe(f"{group}-{name}", [topic]) as member:
                assert numbers(list(member.until_end())) == [0, 1, 2]

    def test_a_group_may_begin_at_the_end(self, log: Log, topic: str, group: str) -> None:
        log.create(topic, partitions=2)
        log.append(topic, numbered(0, 5, partition=0))
        with log.subscribe(group, [topic], start="latest") as member:
            wait_until(lambda: joined(member, 2), what="an assignment")
            log.append(topic, numbered(5, 7, partition=0))
            log.append(topic, numbered(7, 9, partition=1))
            assert sorted(take(member, 4)) == [5, 6, 7, 8]
        log.append(topic, numbered(9, 10))
        with log.subscribe(group, [topic], start="latest") as member:
            assert take(member, 1) == [9]

    def test_two_members_share_the_partitions(self, log: Log, topic: str, group: str) -> None:
        log.create(topic, partitions=4)
        with log.subscribe(group, [topic]) as one, log.subscribe(group, [topic]) as two:
            wait_until(
                lambda: joined(one, 2) & joined(two, 2), within=20, what="two partitions each"
            )
            assert one.assignment | two.assignment == {(topic, n) for n in range(4)}
            for partition in range(4):
                log.append(
                    topic, numbered(partition * 10, partition * 10 + 10, partition=partition)
                )
            for member in (one, two):
                own = sorted(partition for _, partition in member.assignment)
                expected = [p * 10 + n for p in own for n in range(10)]
                assert sorted(take(member, 20)) == expected

    def test_a_closed_member_hands_its_partitions_over(
        self, log: Log, topic: str, group: str
    ) -> None:
        log.create(topic, partitions=2)
        one = log.subscribe(group, [topic])
        with log.subscribe(group, [topic]) as two:
            wait_until(
                lambda: joined(one, 1) & joined(two, 1), within=20, what="one partition each"
            )
            for partition in range(2):
                log.append(topic, numbered(0, 5, partition=partition))
            assert [next(one).offset for _ in range(3)] == [0, 1, 2]
            one.commit()
            one.close()
            seen = Counter(take(two, 7))
            assert seen == {0: 1, 1: 1, 2: 1, 3: 2, 4: 2}
            assert len(two.assignment) == 2

    def test_more_members_than_partitions_leave_one_without(
        self, log: Log, topic: str, group: str
    ) -> None:
        log.create(topic)
        with log.subscribe(group, [topic]) as one:
            wait_until(lambda: joined(one, 1), what="an assignment")
            with log.subscribe(group, [topic]) as two:
                description = wait_until(
                    lambda: (
                        joined(one, 1)
                        and joined(two, 0)
                        and (found := log.describe_group(group)).state == "Stable"
                        and len(found.members) == 2
                        and found
                    ),
                    within=20,
                    what="two members",
                )
                assert list(two.until_end()) == []
        [lag] = description.lags
        assert lag.member in description.members
        assert (lag.committed, lag.end, lag.lag) == (-1, 0, 0)

    def test_closing_from_another_thread_ends_the_iteration(
        self, log: Log, topic: str, group: str
    ) -> None:
        log.create(topic)
        log.append(topic, numbered(0, 3))
        with log.subscribe(group, [topic]) as member:
            read = []
            for record in member:
                read.append(record.offset)
                if len(read) == 3:
                    closer = Thread(target=member.close)
                    closer.start()
            closer.join()
            with pytest.raises(LogClosed):
                member.poll()
        assert read == [0, 1, 2]
        assert log.describe_group(group).lags == (GroupLag(topic, 0, 3, 3, ""),)

    def test_a_group_whose_place_was_trimmed_goes_on_with_what_is_left(
        self, log: Log, topic: str, group: str
    ) -> None:
        log.create(topic)
        log.append(topic, numbered(0, 10))
        log.commit(group, {(topic, 0): 2})
        log.trim(topic, 0, 6)
        with log.subscribe(group, [topic]) as member:
            assert take(member, 4) == [6, 7, 8, 9]

    def test_a_group_shows_its_members_and_its_lag(self, log: Log, topic: str, group: str) -> None:
        log.create(topic, partitions=2)
        log.append(topic, numbered(0, 5, partition=0))
        assert group not in log.groups()
        with log.subscribe(group, [topic]) as member:
            assert [next(member).offset for _ in range(2)] == [0, 1]
            member.commit()
            log.append(topic, numbered(0, 3, partition=1))
            described = log.describe_group(group)
            assert group in log.groups()
            [name] = described.members
            assert described.state == "Stable"
            first, second = described.lags
            assert first == GroupLag(topic, 0, 2, 5, name)
            assert (second.topic, second.partition, second.end, second.member) == (
                topic,
                1,
                3,
                name,
            )
            assert [first.lag, second.lag] == [3, 3]
        described = log.describe_group(group)
        assert (described.name, described.state, described.members) == (group, "Empty", ())
        assert {lag.member for lag in described.lags} == {""}

    def test_an_empty_group_can_be_set(self, log: Log, topic: str, group: str) -> None:
        log.create(topic, partitions=2)
        log.append(topic, numbered(0, 10, partition=0))
        log.commit(group, {(topic, 0): 7, (topic, 1): 0})
        assert log.describe_group(group).lags == (
            GroupLag(topic, 0, 7, 10, ""),
            GroupLag(topic, 1, 0, 0, ""),
        )
        with log.subscribe(group, [topic]) as member:
            assert numbers(list(member.until_end())) == [7, 8, 9]
        log.commit(group, {(topic, 0): 4})
        with log.subscribe(group, [topic]) as member:
            assert numbers(list(member.until_end())) == [4, 5, 6, 7, 8, 9]

    def test_a_group_cannot_be_set_below_zero(self, log: Log, topic: str, group: str) -> None:
        log.create(topic)
        with pytest.raises(InvalidInput):
            log.commit(group, {(topic, 0): -1})
        assert group not in log.groups()

    def test_a_group_with_members_cannot_be_set_or_deleted(
        self, log: Log, topic: str, group: str
    ) -> None:
        log.create(topic)
        log.append(topic, numbered(0, 3))
        with log.subscribe(group, [topic]) as member:
            assert take(member, 3) == [0, 1, 2]
            member.commit()
            with pytest.raises(GroupNotEmpty):
                log.commit(group, {(topic, 0): 1})
            with pytest.raises(GroupNotEmpty):
                log.delete_group(group)
            assert log.describe_group(group).lags[0].committed == 3

    def test_a_deleted_group_begins_anew(self, log: Log, topic: str, group: str) -> None:
        log.create(topic)
        log.append(topic, numbered(0, 3))
        log.commit(group, {(topic, 0): 3})
        log.delete_group(group)
        assert group not in log.groups()
        with log.subscribe(group, [topic]) as member:
            assert numbers(list(member.until_end())) == [0, 1, 2]

    def test_an_unknown_group_is_not_found(self, log: Log, group: str) -> None:
        with pytest.raises(GroupNotFound, match=group):
            log.describe_group(group)
        with pytest.raises(GroupNotFound, match=group):
            log.delete_group(group)
        assert group not in log.groups()
