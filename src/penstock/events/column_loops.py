"""The compiled walks over the records of batches: where each field lies, and the copying of fields.

Compiled code checks no index by itself, so each one is proven here. A walk carries a position and
an end, reads a byte only where `position < end`, and on anything that does not fit goes to
`end + 1`, from where nothing is read any more and where no sound record ends; one comparison at
the end of a record then tells. Positions and sizes are kept as they were proven, and the copying
uses nothing else, so that even a mapped file that changes meanwhile is not read out of bounds.
"""

import numpy as np

from penstock.events.batch import APPEND_TIME, CODEC_MASK, CONTROL, HEADER_BYTES, LENGTH_OVERHEAD
from penstock.events.compiled import Bytes, Number, Numbers, Positions, inlined, kernel

# What there is to know of a batch, a row of the frames: where it stands in the data, where its
# records begin and end in the source they are read from, and what its header says.
AT, BODY, END, BASE_OFFSET, LAST_DELTA, BASE_TIME, MAX_TIME, STAMPED, COUNT, CRC = range(10)
FRAME_FIELDS = 10

# What `index_records` notes of a record, a column of its spans: where a field begins and its size,
# -1 for none; where the headers begin and end, and how many there are.
KEY, KEY_SIZE, VALUE, VALUE_SIZE, HEADERS, HEADERS_END, HEADER_COUNT = range(7)
SPANS = 7

# What `index_headers` notes of a header, likewise.
NAME, NAME_SIZE, CONTENT, CONTENT_SIZE = range(4)
HEADER_SPANS = 4

RECORD_BYTES = 7  # the least that a record can have

# What can be wrong with a record.
FAULTS = (
    "reaches beyond its batch",
    "has fields that do not add up to its length",
    "has an offset that does not follow the one before, or lies beyond its batch",
    "has a timestamp beyond 64 bits",
    "is followed by bytes that belong to no record",
)
_BEYOND, _FIELDS, _OFFSET, _TIME, _LEFTOVER = range(5)

_LAST = np.int64(2**63 - 1)
_FIRST = np.int64(-(2**63))

# Indexes are made unsigned, as otherwise each would be asked whether it counts from the end.


@inlined
def _number(source: Bytes, position: Number, end: Number) -> tuple[Number, Number]:
    """A zigzag-coded number of at most 64 bits, and the position after it."""
    raw = np.uint64(0)
    shift = np.uint64(0)
    while position < end:
        byte = np.uint64(source[np.uint64(position)])
        position += 1
        if shift == np.uint64(63) and byte > np.uint64(1):
            break
        raw |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return np.int64(raw >> np.uint64(1)) ^ -np.int64(raw & np.uint64(1)), position
        shift += np.uint64(7)
    return np.int64(0), end + 1


@inlined
def _field(source: Bytes, position: Number, end: Number) -> tuple[Number, Number]:
    """The size of a field, -1 for none, and the position of its first byte."""
    size, position = _number(source, position, end)
    if size < -1 or size > end - position:
        return np.int64(0), end + 1
    return size, position


@inlined
def _fail(fault: Numbers, frame: int, record: int, what: int) -> int:
    fault[0] = frame
    fault[1] = record
    fault[2] = what
    return -1


@inlined
def _unsigned(source: Bytes, at: Number, size: int) -> np.uint64:
    number = np.uint64(0)
    for byte in range(size):
        number = number << np.uint64(8) | np.uint64(source[np.uint64(at + byte)])
    return number


@kernel
def frame_batches(
    source: Bytes,
    at: Number,
    after: Number,
    until: Number,
    rows: Number,
    size: Number,
    frames: Numbers,
) -> int:
    """Frames the batches from `at` on that are whole, plain, and have a header that can be true.

    Returns how many. It goes on while they have fewer than `rows` records and no more than `size`
    bytes of them, and there is room in the frames; it stops before a batch that is anything else
    than to be read as it stands, which is then for the caller to judge, as checksums are.
    """
    found = 0
    while (
        found < frames.shape[0]
        and rows > 0
        and after < until
        and source.shape[0] - at >= HEADER_BYTES
    ):
        base_offset = np.int64(_unsigned(source, at, 8))
        length = np.int64(np.int32(np.uint32(_unsigned(source, at + 8, 4))))
        attributes = _unsigned(source, at + 21, 2)
        last_delta = np.int64(np.int32(np.uint32(_unsigned(source, at + 23, 4))))
        count = np.int64(np.int32(np.uint32(_unsigned(source, at + 57, 4))))
        body = at + HEADER_BYTES
        end = at + LENGTH_OVERHEAD + length
        if (
            source[np.uint64(at + 16)] != 2
            or end < body
            or end > source.shape[0]
            or end - body > size
            or attributes & np.uint64(CODEC_MASK | CONTROL)
            or base_offset < after
            or base_offset >= until
            or base_offset >= _LAST - last_delta
            or count < 0
            or count > last_delta + 1
            or count * RECORD_BYTES > end - body
        ):
            break
        frames[found, AT] = at
        frames[found, BODY] = body
        frames[found, END] = end
        frames[found, BASE_OFFSET] = base_offset
        frames[found, LAST_DELTA] = last_delta
        frames[found, BASE_TIME] = np.int64(_unsigned(source, at + 27, 8))
        frames[found, MAX_TIME] = np.int64(_unsigned(source, at + 35, 8))
        frames[found, STAMPED] = np.int64(attributes & np.uint64(APPEND_TIME))
        frames[found, COUNT] = count
        frames[found, CRC] = np.int64(_unsigned(source, at + 17, 4))
        found += 1
        rows -= count
        size -= end - body
        after = base_offset + last_delta + 1
        at = end
    return found


@kernel
def index_records(
    source: Bytes,
    frames: Numbers,
    from_offset: int,
    until_offset: int,
    offsets: Numbers,
    timestamps: Numbers,
    spans: Numbers,
    row: int,
    fault: Numbers,
) -> int:
    """Notes the records from `from_offset` to before `until_offset`, in the columns from `row` on.

    Returns the row after the last, or -1 when a record is at fault; `fault` then says in which
    frame, which record, and what is wrong with it. The caller answers for a row for each record
    that the frames count, for bodies that lie inside the source, and for base offsets to which
    the last delta can be added.
    """
    for frame in range(frames.shape[0]):
        position = frames[frame, BODY]
        batch_end = frames[frame, END]
        base_offset = frames[frame, BASE_OFFSET]
        last_delta = frames[frame, LAST_DELTA]
        base_time = frames[frame, BASE_TIME]
        max_time = frames[frame, MAX_TIME]
        stamped = frames[frame, STAMPED] != 0
        count = int(frames[frame, COUNT])
        previous: Number = -1
        for record in range(count):
            size, position = _field(source, position, batch_end)
            if position > batch_end or size < 0:
                return _fail(fault, frame, record, _BEYOND)
            end = position + size
            time_delta, position = _number(source, position + 1, end)  # after unused attributes
            offset_delta, position = _number(source, position, end)
            key_size, key = _field(source, position, end)
            value_size, value = _field(source, key + max(key_size, 0), end)
            headers, position = _number(source, value + max(value_size, 0), end)
            at = np.uint64(row)
            spans[KEY, at] = key
            spans[KEY_SIZE, at] = key_size
            spans[VALUE, at] = value
            spans[VALUE_SIZE, at] = value_size
            spans[HEADERS, at] = position
            spans[HEADERS_END, at] = end
            spans[HEADER_COUNT, at] = headers
            if headers < 0 or headers > end - position:
                return _fail(fault, frame, record, _FIELDS)
            for _ in range(headers):
                name_size, position = _field(source, position, end)
                if name_size < 0:
                    return _fail(fault, frame, record, _FIELDS)
                content_size, position = _field(source, position + name_size, end)
                position += max(content_size, 0)
            if position != end:
                return _fail(fault, frame, record, _FIELDS)
            if offset_delta <= previous or offset_delta > last_delta:
                return _fail(fault, frame, record, _OFFSET)
            previous = offset_delta
            if stamped:
                timestamps[at] = max_time
            elif (time_delta > 0 and base_time > _LAST - time_delta) or (
                time_delta < 0 and base_time < _FIRST - time_delta
            ):
                return _fail(fault, frame, record, _TIME)
            else:
                timestamps[at] = base_time + time_delta
            offset = base_offset + offset_delta
            offsets[at] = offset
            if from_offset <= offset < until_offset:
                row += 1
        if position != batch_end:
            return _fail(fault, frame, count - 1, _LEFTOVER)
    return row


@kernel
def index_headers(
    source: Bytes, records: Numbers, lists: Positions, spans: Numbers, row: int, stop: int
) -> None:
    """Notes the headers of the records from `row` to before `stop`, which have these spans.

    `lists` says to which columns of the headers' spans those of a record go.
    """
    for record in range(row, stop):
        position = records[HEADERS, np.uint64(record)]
        end = records[HEADERS_END, np.uint64(record)]
        for header in range(lists[np.uint64(record)], lists[np.uint64(record + 1)]):
            at = np.uint64(header)
            name_size, name = _field(source, position, end)
            content_size, content = _field(source, name + max(name_size, 0), end)
            position = content + max(content_size, 0)
            spans[NAME, at] = name
            spans[NAME_SIZE, at] = name_size
            spans[CONTENT, at] = content
            spans[CONTENT_SIZE, at] = content_size


@kernel
def place_fields(sizes: Numbers, places: Positions) -> int:
    """Where fields of these sizes begin when laid side by side, and the last ends.

    Returns how many there are, less those of size -1.
    """
    place = 0
    present = 0
    for row in range(sizes.shape[0]):
        places[np.uint64(row)] = place
        size = sizes[np.uint64(row)]
        if size >= 0:
            place += size
            present += 1
    places[np.uint64(sizes.shape[0])] = place
    return present


@kernel
def copy_fields(
    source: Bytes, starts: Numbers, places: Positions, out: Bytes, row: int, stop: int
) -> None:
    """Copies the fields from `row` to before `stop`, which begin at `starts`, to their places."""
    for record in range(row, stop):
        start = np.uint64(starts[np.uint64(record)])
        place = np.uint64(places[np.uint64(record)])
        for byte in range(np.uint64(places[np.uint64(record + 1)]) - place):
            out[place + byte] = source[start + byte]
