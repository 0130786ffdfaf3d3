"""Aggregation of all rows: one row, which is there before any other."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.streams.algebra.aggregates.basic import Aggregate
from penstock.streams.algebra.keyed.aggregate import AggregateKernel


class TotalKernel(AggregateKernel):
    """All rows have the same key `by`, and its row stays when they are gone.

    It comes with the first row, which may be one of weight 0, or without any values.
    """

    def __init__(self, by: str, aggregates: Mapping[str, Aggregate], schema: pa.Schema) -> None:
        super().__init__(by, aggregates, schema)
        self._weighted = False  # whether it is there is no question of how many rows there are

    @property
    def portable(self) -> bool:
        return False

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), "kernel": "total"}
