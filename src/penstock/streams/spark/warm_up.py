"""Loads the compiled kernels, and compiles them where that was never done on this machine.

    python -m penstock.streams.spark.warm_up

Compiling takes half a minute, once after an installation; loading takes seconds in each process.
"""

import tempfile


def warm_up(*, everything: bool = False) -> None:
    """Goes the way of a row once, on this process alone: through a format, a kernel and its state.

    With `everything` through every kind of window, so that the first app to have one need not wait
    for its compilation.
    """
    import pandas as pd  # noqa: F401  Spark's workers import it for every function over Arrow
    import pyarrow as pa

    from penstock.events.columns import decode_columns
    from penstock.events.encoding import encode_columns
    from penstock.events.formats import format_for
    from penstock.streams.algebra import Window, hopping, kernel_over, session, sliding, tumbling
    from penstock.streams.algebra.aggregates import functions as ps
    from penstock.streams.algebra.kernel import END
    from penstock.streams.algebra.keyed.aggregate import AggregateKernel
    from penstock.streams.source import classes, rows  # noqa: F401
    from penstock.streams.spark import exchange  # noqa: F401
    from penstock.streams.spark.query import tasks  # noqa: F401
    from penstock.streams.state import EMPTY, BucketState

    schema = pa.schema({"key": pa.int64(), "number": pa.float64(), "at": pa.timestamp("us", "UTC")})
    row = pa.RecordBatch.from_pylist([{"key": 1, "number": 2.0, "at": 3}], schema=schema)
    form = format_for("json", schema)
    values = pa.RecordBatch.from_arrays([form.encode(row)], ["value"])
    records = decode_columns(b"".join(encode_columns(values))).batch
    form.decode(records["value"])
    asked = {"total": ps.sum("number"), "n": ps.count()}
    windows: list[Window] = [tumbling("1s")]
    if everything:
        windows += [hopping("2s", "1s"), sliding("1s"), session("1s")]
    over = [kernel_over("key", each, asked, schema, "at") for each in windows]
    for kernel in (AggregateKernel("key", asked, schema), *over):
        with (
            tempfile.TemporaryDirectory() as folder,
            BucketState.open(
                folder,
                folder,
                operator="warm",
                bucket=0,
                buckets=1,
                schema=kernel.state,
                version=EMPTY,
            ) as state,
        ):
            list(kernel.step(state, [kernel.partial(row)], END))


if __name__ == "__main__":
    from penstock.streams.spark.class_archive import make_archive

    warm_up(everything=True)
    make_archive()
