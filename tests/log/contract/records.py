"""How records are appended and read in every log."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest
from confluent_kafka import Producer

from penstock.clock import now_ms
from penstock.errors import OffsetOutOfRange, RecordTooLarge
from penstock.events.record import Header, Position, Record
from penstock.log.contract import Bounds, Log

NOON = 1_767_268_800_000  # 2026-01-01, in milliseconds


def values(log: Log, topic: str, partition: int = 0, offset: int = 0) -> list[bytes | None]:
    return [record.value for record in log.read(topic, partition, offset)]


def numbered(count: int, *, partition: int | None = None) -> list[Record]:
    return [Record(value=b"%d" % number, partition=partition) for number in range(count)]


class RecordsContract:
    def test_positions_are_where_the_records_are(self, log: Log, topic: str) -> None:
        log.create(topic, partitions=4)
        records = [Record(key=b"%d" % (n % 10), value=b"%d" % n) for n in range(100)]
        positions = log.append(topic, records[:60]) + log.append(topic, records[60:])
        stored = {
            record.position: (record.key, record.value)
            for partition in range(4)
            for record in log.read(topic, partition, 0)
        }
        assert [stored[position] for position in positions] == [(r.key, r.value) for r in records]
        assert len(stored) == 100

    def test_records_of_a_partition_keep_their_order(self, log: Log, topic: str) -> None:
        log.create(topic)
        assert log.append(topic, numbered(5)) == [Position(topic, 0, n) for n in range(5)]
        assert log.append(topic, [Record(value=b"5")]) == [Position(topic, 0, 5)]
        assert values(log, topic) == [b"0", b"1", b"2", b"3", b"4", b"5"]

    def test_nothing_can_be_appended(self, log: Log, topic: str) -> None:
        log.create(topic)
        assert log.append(topic, []) == []
        assert log.bounds(topic, 0) == Bounds(0, 0)

    def test_a_key_goes_to_the_same_partition_in_every_log(self, log: Log, topic: str) -> None:
        log.create(topic, partitions=7)
        keys = [b"21", b"foobar", b"a-little-bit-long-string", b"abc", b"", b"\xff\x00"]
        positions = log.append(topic, [Record(key=key, value=b"") for key in keys])
        assert [position.partition for position in positions] == [3, 0, 1, 4, 2, 5]

    def test_keyless_records_go_together_and_in_turn(self, log: Log, topic: str) -> None:
        log.create(topic, partitions=3)
        places = [{at.partition for at in log.append(topic, numbered(5))} for _ in range(4)]
        assert places == [{0}, {1}, {2}, {0}]

    def test_a_partition_can_be_set_by_hand(self, log: Log, topic: str) -> None:
        log.create(topic, partitions=3)
        records = [Record(key=b"k", value=b"", partition=partition) for partition in (2, 0, 2, 1)]
        places = [Position(topic, 2, 0), Position(topic, 0, 0), Position(topic, 2, 1)]
        assert log.append(topic, records) == [*places, Position(topic, 1, 0)]

    @pytest.mark.parametrize("key", [None, b"", b"k", b"\x00\xff"])
    @pytest.mark.parametrize("value", [None, b"", b"v", b"\x00\xff"])
    def test_nothing_is_not_the_same_as_empty(
        self, log: Log, topic: str, key: bytes | None, value: bytes | None
    ) -> None:
        log.create(topic)
        log.append(topic, [Record(key=key, value=value)])
        [record] = log.read(topic, 0, 0)
        assert (record.key, record.value) == (key, value)

    @pytest.mark.parametrize(
        "headers",
        [
            (),
            (("trace", b"1"),),
            (("b", b"2"), ("a", b"1"), ("b", b"3")),
            (("none", None), ("empty", b""), ("", b"nameless"), ("größe", b"\xff")),
        ],
    )
    def test_headers_come_back_in_order(
        self, log: Log, topic: str, headers: tuple[Header, ...]
    ) -> None:
        log.create(topic)
        log.append(topic, [Record(value=b"v", headers=headers)])
        [record] = log.read(topic, 0, 0)
        assert record.headers == headers

    def test_timestamps_are_kept_and_filled_in(self, log: Log, topic: str) -> None:
        log.create(topic)
        before = now_ms()
        log.append(
            topic,
            [
                Record(value=b"", timestamp=NOON + 5),
                Record(value=b"", timestamp=NOON),
                Record(value=b"", timestamp=1),
                Record(value=b""),
            ],
        )
        *given, filled_in = [record.timestamp for record in log.read(topic, 0, 0)]
        assert given == [NOON + 5, NOON, 1]
        assert filled_in is not None
        assert before <= filled_in <= now_ms()

    def test_a_topic_may_stamp_the_time_of_appending(self, log: Log, topic: str) -> None:
        log.create(topic, message_timestamp_type="LogAppendTime")
        before = now_ms()
        log.append(topic, [Record(value=b"", timestamp=NOON)])
        [record] = log.read(topic, 0, 0)
        assert record.timestamp is not None
        assert before <= record.timestamp <= now_ms()

    def test_a_record_knows_where_it_was_read(self, log: Log, topic: str) -> None:
        log.create(topic, partitions=2)
        log.append(topic, [Record(value=b"a", partition=1), Record(value=b"b", partition=1)])
        [_, record] = log.read(topic, 1, 0)
        assert record.position == Position(topic, 1, 1)

    def test_a_record_that_was_read_can_be_appended_elsewhere(self, log: Log, topic: str) -> None:
        log.create(f"{topic}-from", partitions=2)
        log.create(f"{topic}-to", partitions=2)
        sent = Record(key=b"k", value=b"v", headers=(("h", b"x"),), timestamp=NOON, partition=1)
        log.append(f"{topic}-from", [sent])
        log.append(f"{topic}-to", log.read(f"{topic}-from", 1, 0))
        [copy] = log.read(f"{topic}-to", 1, 0)
        assert (copy.key, copy.value, copy.headers, copy.timestamp) == (
            *(sent.key, sent.value, sent.headers, sent.timestamp),
        )

    def test_a_large_record_is_taken(self, log: Log, topic: str) -> None:
        log.create(topic)
        large = bytes(range(256)) * 4_000
        log.append(topic, [Record(value=b"before"), Record(value=large), Record(value=b"after")])
        assert values(log, topic) == [b"before", large, b"after"]

    @pytest.mark.parametrize("part", ["key", "value", "header"])
    def test_a_record_above_the_limit_is_refused(self, log: Log, topic: str, part: str) -> None:
        log.create(topic, max_message_bytes=10_000)
        much = bytes(10_001)
        large = {
            "key": Record(key=much, value=b""),
            "value": Record(value=much),
            "header": Record(value=b"", headers=(("h", much),)),
        }[part]
        with pytest.raises(RecordTooLarge, match="10000"):
            log.append(topic, [Record(value=b"a"), large, Record(value=b"b")])
        assert log.bounds(topic, 0) == Bounds(0, 0)
        log.append(topic, [Record(value=b"c")])
        assert values(log, topic) == [b"c"]

    def test_the_limit_can_be_raised(self, log: Log, topic: str) -> None:
        log.create(topic)
        large = bytes(3_000_000)
        with pytest.raises(RecordTooLarge):
            log.append(topic, [Record(value=large)])
        log.alter(topic, max_message_bytes=4_000_000)
        log.append(topic, [Record(value=large)])
        assert values(log, topic) == [large]

    def test_the_limit_is_a_record_s_and_not_an_append_s(self, log: Log, topic: str) -> None:
        log.create(topic, max_message_bytes=1_000)
        records = [Record(value=b"%0100d" % number) for number in range(200)]
        assert log.append(topic, records) == [Position(topic, 0, n) for n in range(200)]
        assert values(log, topic) == [record.value for record in records]

    @pytest.mark.parametrize(
        ("offset", "limit", "found"),
        [
            (0, None, range(10)),
            (3, None, range(3, 10)),
            (3, 4, range(3, 7)),
            (9, 4, [9]),
            (0, 1, [0]),
            (0, 0, []),
            (10, None, []),
            (10, 5, []),
        ],
    )
    def test_a_range_is_read(
        self, log: Log, topic: str, offset: int, limit: int | None, found: Sequence[int]
    ) -> None:
        log.create(topic)
        log.append(topic, numbered(4))
        log.append(topic, numbered(6))
        read = list(log.read(topic, 0, offset, limit=limit))
        assert [record.offset for record in read] == list(found)

    def test_reading_ends_where_the_log_ended(self, log: Log, topic: str) -> None:
        log.create(topic)
        log.append(topic, numbered(2_500))
        reading = log.read(topic, 0, 0)
        first = next(reading)
        log.append(topic, numbered(10))
        assert len(list(log.read(topic, 0, 2_500))) == 10
        assert [record.offset for record in [first, *reading]] == list(range(2_500))

    def test_readings_do_not_disturb_each_other(self, log: Log, topic: str) -> None:
        log.create(topic)
        log.append(topic, numbered(10))
        one, other = log.read(topic, 0, 0), log.read(topic, 0, 5)
        assert [r.offset for r in islice(one, 2)] == [0, 1]
        assert [r.offset for r in islice(other, 2)] == [5, 6]
        del other
        assert [r.offset for r in one] == [2, 3, 4, 5, 6, 7, 8, 9]

    @pytest.mark.parametrize("offset", [-1, 0, 2, 6, 1_000_000])
    def test_an_offset_out_of_range_is_told(self, log: Log, topic: str, offset: int) -> None:
        log.create(topic)
        log.append(topic, numbered(5))
        log.trim(topic, 0, 3)
        with pytest.raises(OffsetOutOfRange) as told:
            next(log.read(topic, 0, offset))
        assert (told.value.start, told.value.end) == (3, 5)

    def test_bounds_follow_appends_and_trims(self, log: Log, topic: str) -> None:
        log.create(topic, partitions=2)
        assert log.bounds(topic, 1) == Bounds(0, 0)
        log.append(topic, numbered(5, partition=1))
        assert log.bounds(topic, 1) == Bounds(0, 5)
        log.trim(topic, 1, 2)
        assert log.bounds(topic, 1) == Bounds(2, 5)
        assert log.bounds(topic, 0) == Bounds(0, 0)
        assert log.describe(topic).partitions == (Bounds(0, 0), Bounds(2, 5))

    def test_trimmed_records_are_gone_and_the_rest_stays(self, log: Log, topic: str) -> None:
        log.create(topic)
        log.append(topic, numbered(6))
        log.trim(topic, 0, 4)
        assert values(log, topic, offset=4) == [b"4", b"5"]
        log.trim(topic, 0, 1)
        assert log.bounds(topic, 0) == Bounds(4, 6)
        log.trim(topic, 0, 6)
        assert log.bounds(topic, 0) == Bounds(6, 6)
        assert log.append(topic, [Record(value=b"6")]) == [Position(topic, 0, 6)]
        assert values(log, topic, offset=6) == [b"6"]

    @pytest.mark.parametrize("offset", [-1, 4])
    def test_a_trim_out_of_range_is_refused(self, log: Log, topic: str, offset: int) -> None:
        log.create(topic)
        log.append(topic, numbered(3))
        with pytest.raises(OffsetOutOfRange):
            log.trim(topic, 0, offset)
        assert log.bounds(topic, 0) == Bounds(0, 3)

    @pytest.mark.parametrize(
        ("after", "offset"),
        [(-60_000, 0), (0, 0), (1, 1), (30, 1), (31, 3), (40, 3), (41, 4), (60_000, 4)],
    )
    def test_an_offset_is_found_by_its_time(
        self, log: Log, topic: str, after: int, offset: int
    ) -> None:
        log.create(topic)
        for time in (0, 30, 20, 40):
            log.append(topic, [Record(value=b"", timestamp=NOON + time)])
        assert log.offset_at(topic, 0, NOON + after) == offset

    def test_an_offset_is_found_by_its_time_within_a_batch(self, log: Log, topic: str) -> None:
        log.create(topic)
        log.append(topic, [Record(value=b"", timestamp=NOON + n * 10) for n in range(100)])
        assert [log.offset_at(topic, 0, NOON + after) for after in (0, 495, 500)] == [0, 50, 50]
        log.trim(topic, 0, 70)
        assert log.offset_at(topic, 0, NOON) == 70

    def test_an_empty_partition_has_only_its_end(self, log: Log, topic: str) -> None:
        log.create(topic)
        assert log.offset_at(topic, 0, NOON) == 0
        assert values(log, topic) == []

    def test_threads_append_at_once(self, log: Log, topic: str) -> None:
        log.create(topic)

        def append(thread: int) -> list[Position]:
            return [
                position
                for first in range(0, 200, 10)
                for position in log.append(
                    topic, [Record(value=b"%d %d" % (thread, n)) for n in range(first, first + 10)]
                )
            ]

        with ThreadPoolExecutor(8) as threads:
            positions = list(threads.map(append, range(8)))
        stored = values(log, topic)
        assert len(stored) == 1_600
        for thread, own in enumerate(positions):
            assert own == sorted(own)
            assert [stored[at.offset] for at in own] == [b"%d %d" % (thread, n) for n in range(200)]

    @pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
    def test_what_clients_compress_is_read(
        self, log: Log, topic: str, address: str, codec: str
    ) -> None:
        log.create(topic)
        sent = [(b"%d" % (n % 7), b"event %d " % n * 20) for n in range(500)]
        settings = {"bootstrap.servers": address, "compression.type": codec, "linger.ms": 20}
        producer = Producer({**settings, "log_level": 0})
        for number, (key, value) in enumerate(sent):
            producer.produce(topic, value, key, 0, timestamp=NOON + number)
        assert producer.flush(20) == 0
        read = list(log.read(topic, 0, 0))
        assert [(record.key, record.value) for record in read] == sent
        assert [record.timestamp for record in read] == [NOON + n for n in range(500)]
        assert values(log, topic, offset=250) == [value for _, value in sent[250:]]

    def test_ten_thousand_records_stay_in_order(self, log: Log, topic: str) -> None:
        log.create(topic)
        positions = log.append(topic, numbered(10_000))
        assert [position.offset for position in positions] == list(range(10_000))
        assert values(log, topic) == [record.value for record in numbered(10_000)]
        assert values(log, topic, offset=9_999) == [b"9999"]
