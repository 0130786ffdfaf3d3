"""The compiled walk over rows and the chunks of the other side that may have partners of them."""

import numpy as np

from penstock.events.compiled import Numbers, kernel


@kernel
def pair_up(
    groups: Numbers,
    starts: Numbers,
    chunks: Numbers,
    timed: bool,
    firsts: Numbers,
    lasts: Numbers,
    times: Numbers,
    cursor: Numbers,
    mine: Numbers,
    theirs: Numbers,
) -> int:
    """Pairs of a row and an entry of a chunk, as many as there is room for; returns how many.

    Chunk n, whose entries are from `chunks[n]` to `chunks[n + 1]`, is for the rows of group
    `groups[n]`, from `starts[group]` to `starts[group + 1]`. With `timed` an entry is a partner if
    its time is from `firsts` to `lasts` of the row. The cursor, three numbers that begin as 0, -1
    and 0, says where to go on; its first is the number of chunks when all are done.
    """
    room = mine.shape[0]
    count = 0
    chunk, row, entry = cursor[0], cursor[1], cursor[2]
    while chunk < groups.shape[0]:
        group = groups[np.uint64(chunk)]
        begin, end = chunks[np.uint64(chunk)], chunks[np.uint64(chunk + 1)]
        if row < 0:
            row, entry = starts[np.uint64(group)], begin
        while row < starts[np.uint64(group + 1)]:
            while entry < end:
                if not timed or (
                    firsts[np.uint64(row)] <= times[np.uint64(entry)]
                    and times[np.uint64(entry)] <= lasts[np.uint64(row)]
                ):
                    if count == room:
                        cursor[0], cursor[1], cursor[2] = chunk, row, entry
                        return count
                    mine[np.uint64(count)] = row
                    theirs[np.uint64(count)] = entry
                    count += 1
                entry += 1
            row += 1
            entry = begin
        chunk += 1
        row = -1
    cursor[0], cursor[1], cursor[2] = chunk, -1, 0
    return count
