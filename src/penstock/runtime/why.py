"""Why a node waits, failed, lags or rejects: sentences, made of what its app last told."""

from collections.abc import Iterator
from datetime import UTC, datetime

from penstock.runtime.query_folder import BESIDE
from penstock.runtime.status import AppStatus, InputStatus, Life, NodeStatus, percent
from penstock.streams.source.event_time import TIMES, Rule

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000))
_APART_MS = 10_000  # partitions whose clocks are closer together hold nobody back to speak of


def explain(status: AppStatus, node: NodeStatus, *, life: Life, now: int) -> list[str]:
    """The most important first. `now` is in milliseconds, as all times but the clocks are."""
    return [
        *_app(status, life, now),
        *_state(node, life, now),
        *_query(status, node),
        *_upstream(status, node),
        *(sentence for each in node.inputs for sentence in _lag(each, node, life)),
        *_clock(node),
        *(sentence for each in node.inputs for sentence in _rejected(each)),
        *_uncomputable(node),
        *_corrected(node),
        *_late(node),
        *_dropped(node),
    ]


def _app(status: AppStatus, life: Life, now: int) -> Iterator[str]:
    heard = roughly(now - status.written_ms)
    if status.spark_died:
        starts = life == "running" and all(each.state == "starting" for each in status.nodes)
        again = "is being started again" if starts else "was started again"
        died = roughly(now - status.spark_died_ms)
        yield f"Spark died {died} ago ({status.spark_died}) and {again}; nothing is lost by that."
    match life:
        case "stopped":
            because = f" by an error: {status.error}" if status.error else ""
            yield (
                f"The app {status.app} stopped {heard} ago{because}. What follows is what it told "
                "last."
            )
        case "gone":
            yield (
                f"The app {status.app} does not run: its process {status.pid} is gone, and did not "
                f"stop in order. It was last heard of {heard} ago, and goes on from there when it "
                "is run again."
            )
        case "silent":
            yield (
                f"The app {status.app} has told nothing for {heard}, though its process "
                f"{status.pid} is there: it hangs, or its machine is overloaded."
            )


def _state(node: NodeStatus, life: Life, now: int) -> Iterator[str]:
    since = roughly(now - node.since_ms)
    match node.state:
        case "starting" if life == "running":
            yield f"{node.name} has not begun: Spark takes some seconds to start."
        case "starting":
            yield f"{node.name} was not started."
        case "failed":
            yield f"{node.name} failed {since} ago: {node.error}"
            yield _tries(node, life, now)
        case "waiting":
            yield (
                f"{node.name} waits for new records in {_names(node)}: all {_rows(node.read)} "
                f"there are have been read{_last_read(node, now)}."
            )
        case "building":
            yield (
                f"{node.name} is being built: {node.built:,} of {_rows(node.to_build)} read, "
                f"{node.progress} %; {_rate(node)}{_batch(node)}."
            )
        case "running":
            yield f"{node.name} runs: {_rate(node)}{_batch(node)}."
        case "stopped":
            behind = "" if node.lag else " and was at the end of its inputs"
            yield f"{node.name} has read {_rows(node.read)} in all{behind}."
    if node.state != "failed" and node.restarts:
        why = f" and has not got further since: {node.error}" if node.error else "."
        yield f"It had to be started again {_times(node.restarts)}{why}"


def _query(status: AppStatus, node: NodeStatus) -> Iterator[str]:
    """Where it runs, if it matters."""
    if node.query.startswith(BESIDE):
        yield (
            "It runs in a query of its own until it has caught up with the others, because it is "
            "new, was built anew, or had failed."
        )
    elif node.query == node.name:
        yield "It runs alone, in a query of its own."
    elif node.query:
        others = sum(each.query == node.query for each in status.nodes) - 1
        if others:
            nodes = "1 other node" if others == 1 else f"{others:,} other nodes"
            yield f"It runs in query {node.query}, together with {nodes}."


def _batch(node: NodeStatus) -> str:
    if node.batch < 0:
        return ", and no batch has ended yet"
    return f"; its last batch, number {node.batch}, took {roughly(node.batch_ms)}"


def _tries(node: NodeStatus, life: Life, now: int) -> str:
    before = f"It has been started again {_times(node.restarts)}" if node.restarts else "It"
    and_is = " and is" if node.restarts else " is"
    if life != "running" or node.retry_at is None:
        return f"{before}{and_is} tried again when the app is run."
    if node.retry_at <= now:
        return f"{before}{and_is} being tried again now."
    return f"{before}{and_is} tried again in {roughly(node.retry_at - now)}."


def _last_read(node: NodeStatus, now: int) -> str:
    moved = [each.moved_ms for each in node.inputs if each.moved_ms is not None]
    return f", the last of them {roughly(now - max(moved))} ago" if moved else ""


def _upstream(status: AppStatus, node: NodeStatus) -> Iterator[str]:
    read = {each.topic for each in node.inputs}
    for other in status.nodes:
        if other.output and other.output in read and other is not node:
            if other.state == "failed":
                yield f"{other.name}, which it reads, has failed: penstock why {other.name}"
            elif other.lag:
                behind = _records(other.lag)
                yield f"{other.name}, which it reads, is itself {behind} behind."


def _lag(told: InputStatus, node: NodeStatus, life: Life) -> Iterator[str]:
    if not told.lag:
        return
    behind = f"It is {_records(told.lag)} behind in {told.name}"
    if life == "running" and node.state == "running" and node.rows_per_second >= 1:
        needed = roughly(round(told.lag / node.rows_per_second * 1_000))
        yield f"{behind}: at {_rate(node)} it needs {needed} for them, if no more come meanwhile."
    else:
        yield f"{behind}."


def _clock(node: NodeStatus) -> Iterator[str]:
    # A table that is read to its end holds nobody back.
    timed = [each for each in node.inputs if each.timed and each.clock != TIMES.stop]
    if not timed or node.batch < 0:  # then nothing is known of its clock yet
        return
    without = [each for each in timed if each.clock is None]
    if without:
        yield "It has no clock yet, so nothing that waits for event time is given out."
        for each in without:
            yield from _held_back(each)
        return
    slowest = min(timed, key=lambda each: each.clock or 0)
    assert slowest.clock is not None
    yield f"Its clock is at {moment(slowest.clock)}."
    fastest = max(each.clock or 0 for each in timed)
    if fastest - slowest.clock >= _APART_MS * 1_000:
        apart = roughly((fastest - slowest.clock) // 1_000)
        yield f"{slowest.name} holds it back, {apart} behind the input that is furthest."
    yield from _held_back(slowest)


def _held_back(told: InputStatus) -> Iterator[str]:
    """By which partition the clock of an input is, if one is far behind the others."""
    empty = [number for number, clock in told.clocks.items() if clock is None]
    known = {number: clock for number, clock in told.clocks.items() if clock is not None}
    if not known:
        yield f"No event has come in {told.name}."
    elif empty:
        which = f"partition {empty[0]}" if len(empty) == 1 else f"partitions {', '.join(empty)}"
        yield f"No event has come in {which} of {told.name}, which the others wait for. " + _idle(
            told
        )
    elif len(known) > 1:
        slowest = min(known, key=lambda number: known[number])
        next_one = min(clock for number, clock in known.items() if number != slowest)
        behind = (next_one - known[slowest]) // 1_000
        if behind >= _APART_MS:
            yield (
                f"Partition {slowest} of {told.name} is at {moment(known[slowest])}, "
                f"{roughly(behind)} behind the others. {_idle(told)}"
            )


def _idle(told: InputStatus) -> str:
    if told.idle_after is None:
        return "idle_after is off: a partition that is silent is waited for without end."
    return f"After {roughly(told.idle_after // 1_000)} of silence it is waited for no longer."


def _rejected(told: InputStatus) -> Iterator[str]:
    total = sum(told.rejected.values())
    if not total:
        return
    share = percent(total / told.read) if told.read else "all"
    if told.alarm:
        yield f"ALARM: {told.alarm}, which is its rejected_alarm."
    yield (
        f"{_rows(total)} of {told.name} {'was' if total == 1 else 'were'} rejected, {share} of "
        f'those read; app.rejected("{told.name}") is the stream of them.'
    )
    rule = Rule.parse(told.source["event_time"]) if "event_time" in told.source else Rule()
    for reason, count in sorted(told.rejected.items(), key=lambda each: -each[1]):
        yield f"  {count:,} {reason}: {_meaning(reason, rule)}"


def _uncomputable(node: NodeStatus) -> Iterator[str]:
    total = sum(node.uncomputable.values())
    if not total:
        return
    yield (
        f"{_rows(total)} {'was' if total == 1 else 'were'} rejected because a value could not be "
        f"computed, or not be written; the topic {node.output}-rejected has them."
    )
    for reason, count in sorted(node.uncomputable.items(), key=lambda each: -each[1]):
        yield f"  {count:,} {reason}"


def _corrected(node: NodeStatus) -> Iterator[str]:
    if stragglers := sum(each.stragglers for each in node.inputs):
        yield f"{_rows(stragglers)} came after the clock, in time to correct."
    if node.corrected:
        results = "1 result" if node.corrected == 1 else f"{node.corrected:,} results"
        yield f"It took back {results} that it had given out as final."


def _late(node: NodeStatus) -> Iterator[str]:
    if node.late:
        yield (
            f"{_rows(node.late)} came after the windows they belong to were let go, and count "
            "nowhere: from a partition that was idle, or a longer correct_for would take them."
        )


def _dropped(node: NodeStatus) -> Iterator[str]:
    if node.dropped:
        yield f"It has left out {_rows(node.dropped)} as duplicates."


def _meaning(reason: str, rule: Rule) -> str:
    column = ", ".join(rule.columns) or "the record's timestamp"
    match reason:
        case "late":
            allowed = roughly(((rule.wait or 0) + rule.correct_for) // 1_000)
            return (
                f"{column} was more than {allowed} behind the latest event of the partition; "
                "a longer wait or correct_for would take them"
            )
        case "future":
            ahead = roughly((rule.guard or 0) // 1_000)
            return (
                f"{column} was more than {ahead} ahead of when the record was appended; "
                "a clock that sends them is wrong, or guard too short"
            )
        case "missing":
            return f"{column} was null, so nobody knows when it happened"
        case "unparsable":
            return "the value does not fit the schema that the stream was declared with"
    return reason


def roughly(milliseconds: int) -> str:
    """`850ms`, `12s`, `4m 10s`, `3d 2h`: the two largest units of it."""
    if milliseconds < 1_000:
        return f"{max(0, milliseconds)}ms"
    parts: list[str] = []
    for unit, size in _UNITS:
        amount, milliseconds = divmod(milliseconds, size)
        if amount or parts:
            parts.append(f"{amount}{unit}" if amount else "")
    return " ".join(part for part in parts[:2] if part)


def moment(micros: int) -> str:
    """2026-01-31T10:02:11Z; where the calendar has no such day, the microseconds since 1970."""
    try:
        return f"{datetime.fromtimestamp(micros // 1_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):
        return str(micros)


def _rate(node: NodeStatus) -> str:
    return f"{node.rows_per_second:,.0f} rows/s"


def _rows(count: int) -> str:
    return f"{count:,} row" if count == 1 else f"{count:,} rows"


def _records(count: int) -> str:
    return f"{count:,} record" if count == 1 else f"{count:,} records"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _names(node: NodeStatus) -> str:
    return " and ".join(each.name for each in node.inputs)
