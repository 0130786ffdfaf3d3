"""Columns that kernels add to rows on their own account; no column of a user is named so."""

import pyarrow as pa

from penstock.events.compiled import Numbers
from penstock.streams.state import fixed_width

PANE = "(pane)"  # the number of a piece of time
DUE = "(due)"  # the clock at which a row of state is looked at, in microseconds
ROWS = "(rows)"  # how many rows were packed into one


def panes_of(rows: pa.RecordBatch) -> Numbers:
    return fixed_width.numbers(rows.column(PANE))
