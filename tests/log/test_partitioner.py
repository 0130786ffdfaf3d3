from concurrent.futures import ThreadPoolExecutor

import pytest
from aiokafka.partitioner import murmur2 as foreign_murmur2
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import PartitionNotFound
from penstock.events.record import Record
from penstock.log.partitioner import TOGETHER, Partitioner


def keyless(count: int) -> list[Record]:
    return [Record(value=b"") for _ in range(count)]


# Hashes that Kafka's Java client is known to give, from the tests of its own murmur2.
@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
@pytest.mark.parametrize("partitions", [1, 2, 7, 12, 100])
def test_a_key_goes_where_the_java_client_sends_it(
    key: bytes, hashed: int, partitions: int
) -> None:
    places = Partitioner().place("orders", [Record(key=key, value=b"")], partitions)
    assert places == [(hashed & 0x7FFFFFFF) % partitions]


@given(key=st.binary(max_size=60), partitions=st.integers(1, 64))
def test_a_key_goes_where_another_client_sends_it(key: bytes, partitions: int) -> None:
    places = Partitioner().place("orders", [Record(key=key, value=None)], partitions)
    assert places == [(foreign_murmur2(key) & 0x7FFFFFFF) % partitions]


def test_a_partition_set_by_hand_wins_over_the_key() -> None:
    records = [Record(key=b"21", value=b"", partition=partition) for partition in (2, 0, 1)]
    assert Partitioner().place("orders", records, 3) == [2, 0, 1]


@pytest.mark.parametrize("partition", [-1, 3])
def test_a_partition_that_is_not_there_is_refused(partition: int) -> None:
    with pytest.raises(PartitionNotFound, match="numbered from 0"):
        Partitioner().place("orders", [Record(value=b"", partition=partition)], 3)


def test_keyless_records_of_a_call_stay_together_and_calls_take_turns() -> None:
    partitioner = Partitioner()
    places = [partitioner.place("orders", keyless(3), 2) for _ in range(4)]
    assert places == [[0, 0, 0], [1, 1, 1], [0, 0, 0], [1, 1, 1]]


def test_a_large_append_is_spread_in_runs() -> None:
    places = Partitioner().place("orders", keyless(2 * TOGETHER + 1), 3)
    assert places == [0] * TOGETHER + [1] * TOGETHER + [2]


def test_keys_between_keyless_records_do_not_move_the_turn_on() -> None:
    keyed = Record(key=b"21", value=b"")
    places = Partitioner().place("orders", [keyed, *keyless(2), keyed, *keyless(2)], 5)
    assert [places[i] for i in (1, 2, 4, 5)] == [0] * 4


def test_each_topic_has_its_own_turn() -> None:
    partitioner = Partitioner()
    partitioner.place("orders", keyless(1), 2)
    assert partitioner.place("payments", keyless(1), 2) == [0]


def test_threads_share_the_turn_evenly() -> None:
    partitioner = Partitioner()
    with ThreadPoolExecutor(4) as threads:
        places = list(threads.map(lambda _: partitioner.place("t", keyless(1), 4)[0], range(400)))
    assert [places.count(partition) for partition in range(4)] == [100] * 4
