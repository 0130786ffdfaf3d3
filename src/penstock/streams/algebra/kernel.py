"""What a stateful operator is to those who run it: a function of state and changes.

    rows -> partial -> packed, to their buckets -> step -> changes

`partial` runs wherever the rows are, on any cut of them; `step` runs once for a bucket and a batch.
What comes out, all batches together, does not depend on the cuts.
"""

import base64
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.events.compiled import Mask, Numbers
from penstock.streams.state import BucketState, StateSchema

NEVER = -(1 << 62)  # the clock before the first event
END = 1 << 62  # the clock after the last one
_EMISSIONS = ("final", "changes")


class Packing(Protocol):
    """How the rows of an input go to their buckets."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns, which are the first ones of what `partial` gives."""
        ...

    @property
    def packed(self) -> pa.Schema:
        """That of what `partial` gives."""
        ...

    @property
    def needed(self) -> tuple[str, ...]:
        """The input columns that are read; no others have to be shipped."""
        ...

    def partial(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows as `step` takes them, fewer where that is possible."""
        ...

    def spec(self) -> dict[str, Any]:
        """What JSON can hold and, if it is portable, `kernel_from_spec` makes this one from."""
        ...

    @property
    def portable(self) -> bool:
        """Whether the spec says everything, as it cannot of functions that a user wrote."""
        ...


class Stepping(Protocol):
    """What is done with them there, with whatever came from all inputs."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns of what `step` gives, if it gives them."""
        ...

    @property
    def packed(self) -> pa.Schema:
        """That of what `step` is given."""
        ...

    @property
    def state(self) -> StateSchema: ...

    @property
    def output(self) -> pa.Schema:
        """That of what `step` gives: changes of a table, with a `_weight`."""
        ...

    def step(
        self, state: BucketState, packed: Sequence[pa.RecordBatch], clock: int | None
    ) -> Iterator[pa.RecordBatch]:
        """Changes the state by everything that a batch has for this bucket; gives what changed.

        The state is changed when all of it is read, and is the caller's to commit. The clock, in
        microseconds, is that of the batch: nothing before it follows but what corrects.
        """
        ...

    def spec(self) -> dict[str, Any]:
        """All that it is, as far as JSON can hold it."""
        ...

    @property
    def is_final(self) -> bool:
        """Whether what it gives is meant to stay, so that to take it back is a correction."""
        ...


class Kernel(Packing, Stepping, Protocol):
    """An operator of one input."""


def schema_to_spec(schema: pa.Schema) -> str:
    return base64.b64encode(schema.remove_metadata().serialize()).decode()


def schema_from_spec(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def passed(state: BucketState, clock: int | None) -> tuple[int, int]:
    """The clock of the step before, and that of this one, which is no lower."""
    before = NEVER if state.clock is None else state.clock
    return before, before if clock is None else max(clock, before)


def one_batch(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch | None:
    """All rows in one batch, in order, if there are any."""
    filled = [each for each in batches if each.num_rows]
    if len(filled) < 2:
        return filled[0] if filled else None
    return pa.concat_batches(filled)


def without_late(
    state: BucketState, rows: pa.RecordBatch, late: Mask, counts: Numbers
) -> pa.RecordBatch | None:
    """Those that are not late, if there are any; the others are counted, each as so many."""
    if not late.any():
        return rows
    state.count(late=int(counts[late].sum()))
    return one_batch([rows.filter(pa.array(~late))])


def check_emission(what: str, emit: str) -> None:
    """Raises InvalidInput unless `emit` is "final", once the clock has passed, or "changes"."""
    if emit not in _EMISSIONS:
        raise InvalidInput(
            f"{what} cannot be given out as {emit!r}", hint=f"emit is {' or '.join(_EMISSIONS)}"
        )
