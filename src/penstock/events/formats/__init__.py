"""How the values of records are written and read as rows.

    rows, kept, refused = format_for("json", schema).decode(values)

No value is lost: each is a row or is refused, with the reason.
"""

from collections.abc import Mapping

import pyarrow as pa

from penstock.errors import InvalidInput
from penstock.events.formats.contract import Decoded, Format, Refused

__all__ = ["Decoded", "Format", "Refused", "format_for"]

# The formats there are, and the options that each takes.
FORMATS: dict[str, frozenset[str]] = {
    "json": frozenset(),
    "text": frozenset(),
    "bytes": frozenset(),
    "csv": frozenset({"sep"}),
    "avro": frozenset({"schema", "registry"}),
}


def format_for(name: str, schema: pa.Schema, options: Mapping[str, str] | None = None) -> Format:
    """The format of this name for rows of a schema.

    csv takes the option `sep`; avro takes `schema`, Avro's own in JSON, and `registry`, which is
    "confluent" where five bytes of a schema registry stand before each value. Raises InvalidInput,
    or InvalidSchema where the format cannot hold the schema.
    """
    options = options or {}
    if name not in FORMATS:
        raise InvalidInput(f"there is no format {name!r}", hint=f"formats are {', '.join(FORMATS)}")
    if unknown := set(options) - FORMATS[name]:
        raise InvalidInput(
            f"there is no option {min(unknown)!r} of the format {name}",
            hint=f"it takes {', '.join(sorted(FORMATS[name])) or 'none'}",
        )
    # Each is loaded when it is asked for: not every program needs all of their libraries.
    match name:
        case "json":
            from penstock.events.formats.json import JsonFormat

            return JsonFormat(schema)
        case "text":
            from penstock.events.formats.text import TextFormat

            return TextFormat(schema)
        case "bytes":
            from penstock.events.formats.bytes import BytesFormat

            return BytesFormat(schema)
        case "csv":
            from penstock.events.formats.csv import CsvFormat

            return CsvFormat(schema, **options)
        case _:
            from penstock.events.formats.avro import AvroFormat

            return AvroFormat(schema, **options)
