"""Which partition a record goes to; the same in every log, so that a key stays where it is."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import count

from confluent_kafka.cimpl import murmur2

from penstock.errors import InvalidInput, PartitionNotFound
from penstock.events.record import Record

# So many keyless neighbours share a partition before the next has its turn: enough to fill a
# batch, and few enough to spread a large append over all partitions.
TOGETHER = 1_000


class Partitioner:
    """Places records: by hand, by the murmur2 hash of the key, or in turn when there is no key.

    The turn is kept for each topic and begins at partition 0. May be used from several threads.
    """

    def __init__(self) -> None:
        self._turns: defaultdict[str, count[int]] = defaultdict(count)

    def place(self, topic: str, records: Sequence[Record], partitions: int) -> list[int]:
        """The partition of each record. Raises PartitionNotFound for one set by hand."""
        places: list[int] = []
        keyless = turn = 0
        for record in records:
            if not isinstance(record, Record):
                raise InvalidInput(
                    f"{type(record).__name__} is not a Record", hint="append a list of records"
                )
            if record.partition is not None:
                if not 0 <= record.partition < partitions:
                    raise PartitionNotFound(
                        f"topic {topic!r} has no partition {record.partition}",
                        hint=f"it has {partitions}, numbered from 0",
                    )
                places.append(record.partition)
            elif record.key is not None:
                places.append(murmur2(record.key, partitions))
            else:
                if keyless % TOGETHER == 0:
                    turn = next(self._turns[topic]) % partitions
                keyless += 1
                places.append(turn)
        return places
