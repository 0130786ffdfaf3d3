"""Appends on a condition, writers and append times, in every log of penstock's own."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock.clock import now_ms
from penstock.errors import (
    CorruptBatch,
    InvalidInput,
    LogError,
    PartitionNotFound,
    RecordTooLarge,
    TopicNotFound,
    VersionConflict,
    WriterFenced,
)
from penstock.events.batch import TRANSACTIONAL, encode
from penstock.events.record import Position, Record
from penstock.log.contract import Bounds, Log
from penstock.log.writer import Expected
from tests.log.contract.records import numbered, values


def event(key: bytes, value: bytes = b"", partition: int | None = None) -> Record:
    return Record(key=key, value=value, partition=partition)


class ExactContract:
    # On the condition of a version

    def test_two_with_the_same_expected_offset(self, log: Log, topic: str) -> None:
        log.create(topic)
        assert log.append(topic, numbered(3), expected=-1) == [
            Position(topic, 0, offset) for offset in range(3)
        ]
        assert log.append(topic, numbered(1), expected=2) == [Position(topic, 0, 3)]
        with pytest.raises(VersionConflict, match="read what was appended since") as conflict:
            log.append(topic, numbered(2), expected=2)
        assert conflict.value.actual == 3
        assert log.bounds(topic, 0) == Bounds(0, 4)

    def test_two_with_the_same_expected_offset_of_a_key(self, log: Log, topic: str) -> None:
        log.create(topic, partitions=5)
        first = log.append(topic, [event(b"ada"), event(b"ada")], expected={b"ada": -1})[-1]
        log.append(topic, [event(b"bob", partition=first.partition)])
        second = log.append(topic, [event(b"ada")], expected={b"ada": first.offset})[-1]
        assert second.offset == first.offset + 2
        with pytest.raises(VersionConflict, match="b'ada'") as conflict:
            log.append(topic, [event(b"ada")], expected={b"ada": first.offset})
        assert conflict.value.actual == second.offset
        with pytest.raises(VersionConflict) as conflict:
            log.append(topic, [event(b"cy", partition=second.partition)], expected={b"cy": 0})
        assert conflict.value.actual == -1

    @pytest.mark.parametrize("expected", [2, {b"k": 2}], ids=["partition", "key"])
    def test_what_others_append_counts_as_well(
        self, log: Log, topic: str, expected: Expected
    ) -> None:
        log.create(topic)
        log.append(topic, [event(b"k")], expected={b"k": -1})
        log.append(topic, [event(b"k"), event(b"k")])  # by a producer that expects nothing
        assert log.append(topic, [event(b"k")], expected=expected) == [Position(topic, 0, 3)]

    def test_all_of_several_keys_must_be_as_expected(self, log: Log, topic: str) -> None:
        log.create(topic)
        log.append(topic, [event(b"a"), event(b"b"), event(b"")])
        with pytest.raises(VersionConflict) as conflict:
            log.append(topic, [event(b"a")], expected={b"a": 0, b"b": 0})
        assert conflict.value.actual == 1
        log.append(topic, [event(b"a")], expected={b"a": 0, b"b": 1, b"": 2, b"\xff\x00": -1})

    def test_a_forgotten_record_is_no_version_of_its_key(self, log: Log, topic: str) -> None:
        log.create(topic)
        log.append(topic, [event(b"a"), event(b"b")], expected={b"a": -1})
        log.trim(topic, 0, 1)
        with pytest.raises(VersionConflict) as conflict:
            log.append(topic, [event(b"a")], expected={b"a": 0})
        assert conflict.value.actual == -1
        with pytest.raises(VersionConflict) as conflict:
            log.append(topic, [event(b"a")], expected=-1)
        assert conflict.value.actual == 1

    def test_a_version_is_that_of_one_partition(self, log: Log, topic: str) -> None:
        log.create(topic, partitions=2)
        apart = [Record(value=b"", partition=0), Record(value=b"", partition=1)]
        for records in (apart, numbered(1), []):
            with pytest.raises(InvalidInput, match="the same key, or the same partition"):
                log.append(topic, records, expected=-1)
        assert log.bounds(topic, 0) == log.bounds(topic, 1) == Bounds(0, 0)

    def test_several_batches_on_one_condition(self, log: Log, topic: str) -> None:
        log.create(topic)
        large = [Record(value=b"%d" % n + b"." * 400_000) for n in range(8)]
        assert len(log.append(topic, large, expected=-1)) == 8
        assert values(log, topic) == [record.value for record in large]

    def test_of_many_at_once_one_wins(self, log: Log, topic: str) -> None:
        log.create(topic)
        start = Barrier(6)

        def command(number: int) -> int:
            start.wait()
            won = 0
            for version in range(20):
                try:
                    log.append(topic, [event(b"k", b"%d" % number)], expected={b"k": version - 1})
                    won += 1
                except VersionConflict as conflict:
                    told.append((version, conflict.actual, log.bounds(topic, 0).end))
            return won

        told: list[tuple[int, int, int]] = []
        with ThreadPoolExecutor(6) as threads:
            assert sum(threads.map(command, range(6))) == 20
        # Whoever lost was told of a version that can be read.
        assert all(version <= actual < end for version, actual, end in told)
        assert log.bounds(topic, 0) == Bounds(0, 20)

    # Writers

    def test_a_batch_is_stored_once(self, log: Log, topic: str) -> None:
        log.create(topic, partitions=3)
        writer = log.open_writer(topic)
        assert writer.last_batch(topic, 0) == -1
        assert writer.append(topic, {0: numbered(2), 1: numbered(1)}, batch=5) == {
            0: range(2),
            1: range(1),
        }
        assert writer.append(topic, {0: numbered(2), 2: numbered(1)}, batch=5) == {
            0: None,
            2: range(1),
        }
        assert writer.append(topic, {0: numbered(2)}, batch=4) == {0: None}
        assert [writer.last_batch(topic, partition) for partition in range(3)] == [5, 5, 5]
        assert writer.append(topic, {0: numbered(1), 1: []}, batch=9) == {0: range(2, 3)}
        assert [writer.last_batch(topic, partition) for partition in range(3)] == [9, 5, 5]
        assert values(log, topic) == [b"0", b"1", b"0"]

    def test_writers_do_not_know_each_other(self, log: Log, topic: str) -> None:
        log.create(topic)
        one, other = log.open_writer(f"{topic}-one"), log.open_writer(f"{topic}-other")
        one.append(topic, {0: numbered(1)}, batch=7)
        assert other.last_batch(topic, 0) == -1
        assert other.append(topic, {0: numbered(1)}, batch=0) == {0: range(1, 2)}
        assert one.append(topic, {0: numbered(1)}, batch=8) == {0: range(2, 3)}

    def test_an_older_writer_of_the_name_is_fenced(self, log: Log, topic: str) -> None:
        log.create(topic)
        old = log.open_writer(topic)
        old.append(topic, {0: numbered(1)}, batch=1)
        new = log.open_writer(topic)
        assert new.epoch == old.epoch + 1
        assert new.name == old.name == topic
        assert new.last_batch(topic, 0) == 1
        doings: list[Callable[[], object]] = [
            lambda: old.append(topic, {0: numbered(1)}, batch=2),
            lambda: old.append(topic, {0: numbered(1)}, batch=1),
            lambda: old.append_encoded(topic, {0: encode(numbered(1))}, batch=2),
            lambda: old.last_batch(topic, 0),
        ]
        for doing in doings:
            with pytest.raises(WriterFenced, match="took over"):
                doing()
        assert new.append(topic, {0: numbered(1)}, batch=2) == {0: range(1, 2)}

    def test_a_large_batch(self, log: Log, topic: str) -> None:
        log.create(topic, partitions=2)
        writer = log.open_writer(topic)
        large = [Record(key=b"k", value=b"%06d" % n + b"." * 9_000) for n in range(1_000)]
        assert writer.append(topic, {0: large, 1: large}, batch=0) == {
            0: range(1000),
            1: range(1000),
        }
        assert writer.append(topic, {0: large, 1: large}, batch=0) == {0: None, 1: None}
        assert values(log, topic, 0) == values(log, topic, 1) == [record.value for record in large]

    @pytest.mark.parametrize("codec", range(5))
    def test_batches_encoded_elsewhere(self, log: Log, topic: str, codec: int) -> None:
        log.create(topic)
        writer = log.open_writer(topic)
        records = [event(b"k", b"%d" % n) for n in range(4)]
        # Of another's producer, with another's sequence: the writer's own stands there instead.
        foreign = {"producer": (7, 3, 99), "attributes": TRANSACTIONAL}
        encoded = encode(records[:3], codec=codec) + encode(records[3:], **foreign)  # type: ignore[arg-type]
        assert writer.append_encoded(topic, {0: encoded}, batch=3) == {0: range(4)}
        assert writer.append_encoded(topic, {0: encoded}, batch=3) == {0: None}
        assert values(log, topic) == [b"0", b"1", b"2", b"3"]
        log.append(topic, [event(b"k")], expected={b"k": 3})

    def test_what_is_not_a_batch_is_refused(self, log: Log, topic: str) -> None:
        log.create(topic, max_message_bytes=1_000)
        writer = log.open_writer(topic)
        good = encode(numbered(1))
        broken = good + good[:-1] + b"!"
        with pytest.raises(CorruptBatch, match="checksum"):
            writer.append_encoded(topic, {0: broken}, batch=0)
        with pytest.raises(RecordTooLarge):
            writer.append_encoded(topic, {0: good + encode([Record(value=bytes(1_000))])}, batch=0)
        with pytest.raises(RecordTooLarge):
            writer.append(topic, {0: [Record(value=bytes(1_000))]}, batch=0)
        assert log.bounds(topic, 0) == Bounds(0, 0)
        assert writer.append(topic, {0: numbered(200)}, batch=0) == {0: range(200)}

    @pytest.mark.parametrize("batch", [-1, 2**31])
    def test_numbers_that_cannot_be(self, log: Log, topic: str, batch: int) -> None:
        log.create(topic)
        writer = log.open_writer(topic)
        with pytest.raises(InvalidInput, match="0 to 2147483647"):
            writer.append(topic, {0: numbered(1)}, batch=batch)
        with pytest.raises(PartitionNotFound):
            writer.append(topic, {1: numbered(1)}, batch=0)
        with pytest.raises(TopicNotFound):
            writer.append(f"{topic}-not", {0: numbered(1)}, batch=0)
        with pytest.raises(InvalidInput, match="1 to 249"):
            log.open_writer("")

    def test_a_writer_can_expect_a_version(self, log: Log, topic: str) -> None:
        log.create(topic)
        writer = log.open_writer(topic)
        assert writer.append(topic, {0: numbered(1)}, batch=0, expected=-1) == {0: range(1)}
        # Sent again, it is known, and not in conflict with itself.
        assert writer.append(topic, {0: numbered(1)}, batch=0, expected=-1) == {0: None}
        with pytest.raises(VersionConflict) as conflict:
            writer.append(topic, {0: numbered(1)}, batch=1, expected=-1)
        assert conflict.value.actual == 0
        assert writer.last_batch(topic, 0) == 0
        with pytest.raises(InvalidInput):
            writer.append(topic, {0: numbered(1), 1: numbered(1)}, batch=1, expected=0)

    def test_a_topic_made_again_knows_no_batches(self, log: Log, topic: str) -> None:
        log.create(topic)
        writer = log.open_writer(topic)
        writer.append(topic, {0: numbered(1)}, batch=3)
        log.delete(topic)
        log.create(topic)
        assert writer.last_batch(topic, 0) == -1
        assert writer.append(topic, {0: numbered(1)}, batch=0) == {0: range(1)}

    def test_of_two_writers_at_once_one_goes_on(self, log: Log, topic: str) -> None:
        """Each batch is there once, whoever wrote it, and none of the fenced one behind the end."""
        log.create(topic)
        log.open_writer(topic)

        def write(number: int) -> int:
            stored = 0
            writer = log.open_writer(topic)
            for batch in range(40):
                records = [Record(value=b"%d %d" % (batch, each)) for each in range(3)]
                try:
                    stored += writer.append(topic, {0: records}, batch=batch)[0] is not None
                except WriterFenced:
                    break
            return stored

        with ThreadPoolExecutor(4) as threads:
            assert sum(threads.map(write, range(4))) == 40
        expected = [b"%d %d" % (batch, each) for batch in range(40) for each in range(3)]
        assert values(log, topic) == expected

    def test_other_clients_read_what_writers_wrote(
        self, log: Log, topic: str, address: str
    ) -> None:
        log.create(topic)
        records = [Record(key=b"%d" % n, value=b"." * 300_000) for n in range(6)]
        writer = log.open_writer(topic)
        writer.append(topic, {0: records}, batch=2**31 - 1)
        log.append(topic, [Record(key=b"last", value=b"")])
        consumer = Consumer(
            {"bootstrap.servers": address, "group.id": topic, "check.crcs": True}
            | {"isolation.level": "read_committed", "enable.auto.commit": False}
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = [consumer.poll(10) for _ in range(7)]
        consumer.close()
        keys = [None if message is None else message.key() for message in messages]
        assert keys == [*(b"%d" % n for n in range(6)), b"last"]

    # Append times

    def test_append_times(self, log: Log, topic: str) -> None:
        log.create(topic)
        assert log.append_times(topic, 0, 0, 10) == []
        before = now_ms()
        for _ in range(3):
            log.append(topic, [Record(value=b"", timestamp=1)])
        after = now_ms()
        pairs = log.append_times(topic, 0, 0, 3)
        assert pairs[0][0] == 0
        assert all(before <= at <= after for _, at in pairs)
        assert log.append_times(topic, 0, 2, 3)[0] == pairs[-1]
        assert log.append_times(topic, 0, 3, 3) == []
        with pytest.raises(TopicNotFound):
            log.append_times(f"{topic}-not", 0, 0, 1)


class NotExactContract:
    """Apache Kafka has nothing of it, and says so."""

    def test_it_is_refused_with_a_hint(self, log: Log, topic: str) -> None:
        log.create(topic)
        doings: list[Callable[[], object]] = [
            lambda: log.append(topic, numbered(1), expected=-1),
            lambda: log.append(topic, [event(b"k")], expected={b"k": -1}),
            lambda: log.open_writer(topic),
            lambda: log.append_times(topic, 0, 0, 1),
        ]
        for doing in doings:
            with pytest.raises(LogError, match="hint: on Apache Kafka, use transactions"):
                doing()
        assert log.bounds(topic, 0) == Bounds(0, 0)
