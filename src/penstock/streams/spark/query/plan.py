"""What the tasks of a batch need to know: it travels with each job, as a property of Spark's."""

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from pyspark import SparkContext, TaskContext

from penstock.streams.source.offsets import least_clock
from penstock.streams.source.progress import Progress
from penstock.streams.source.ranges import Range
from penstock.streams.spark.packing import BATCH_ID
from penstock.streams.state import EMPTY

_PROPERTY = "penstock.batch"


class SourceRange(NamedTuple):
    """Which records of a source a task reads; `topic` is the identity that it must have."""

    source: int
    topic: str
    partition: int
    end: int
    progress: dict[str, Any]

    def range(self, planned_ms: int) -> Range:
        return Range(self.partition, self.end, Progress.from_json(self.progress), planned_ms)


@dataclass(frozen=True)
class BatchPlan:
    """`ranges` has a list for each reading task; `clocks` has the clock of each source and the one
    before, None without one; `versions` says which version of its state each bucket of an operator
    begins with."""

    batch: int
    planned_ms: int
    ranges: list[list[SourceRange]]
    clocks: list[tuple[int | None, int | None]]
    versions: dict[str, list[int]] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """How many it reads."""
        return sum(each.end - each.progress["at"] for some in self.ranges for each in some)

    def clock(self, sources: tuple[int, ...] | None) -> int | None:
        """The least clock of these sources, None if one has none yet; without sources to go by, the
        wall clock."""
        if sources is None:
            return self.planned_ms * 1_000
        return least_clock([self.clocks[each][0] for each in sources])

    def has_moved(self, sources: tuple[int, ...] | None) -> bool:
        """Whether their clock is another one than in the batch before, as the wall clock always
        is."""
        if sources is None:
            return True
        before = least_clock([self.clocks[each][1] for each in sources])
        return self.clock(sources) != before

    def version(self, operator: str, bucket: int) -> int:
        versions = self.versions.get(operator)
        return EMPTY if versions is None else versions[bucket]

    def announce(self, context: SparkContext) -> None:
        """To all jobs that this thread starts from now on."""
        context.setLocalProperty(_PROPERTY, json.dumps(self.__dict__))
        context.setLocalProperty(BATCH_ID, str(self.batch))

    @classmethod
    def of_task(cls) -> Self:
        """That of the task which asks."""
        context = TaskContext.get()
        assert context is not None
        content = json.loads(context.getLocalProperty(_PROPERTY) or "{}")
        content["ranges"] = [[SourceRange(*each) for each in some] for some in content["ranges"]]
        return cls(**content)
