"""Every exception penstock raises on purpose.

    PenstockError
    ├── InvalidInput                a name, a setting or an argument that cannot be right
    │   ├── InvalidTopic
    │   ├── InvalidPolicy
    │   ├── InvalidDuration
    │   ├── InvalidSchema
    │   └── InvalidSql              a view that is no query, or none that can be kept up to date
    ├── LogError
    │   ├── TopicNotFound
    │   ├── TopicExists
    │   ├── PartitionNotFound
    │   ├── OffsetOutOfRange
    │   ├── RecordTooLarge
    │   ├── CorruptBatch            bytes that do not check out, with file and position
    │   ├── StorageFailed           the disk refused: writes stop, reads go on
    │   │   └── DiskFull
    │   ├── LogLocked               another process owns the data folder
    │   ├── LogClosed
    │   ├── LogUnreachable
    │   ├── GroupNotFound
    │   ├── GroupNotEmpty
    │   ├── SequenceError           an idempotent producer's numbering does not fit
    │   │   ├── OutOfOrderSequence
    │   │   └── StaleProducerEpoch
    │   ├── VersionConflict         the log is not at the version that an append expected
    │   └── WriterFenced            another writer took over the name
    ├── StateError
    │   ├── StateMissing            a version that is not kept, or a file of one that is gone
    │   ├── StateDamaged            a file whose bytes do not check out
    │   ├── StateMismatch           state of another schema or of another history
    │   └── StateLocked             another process works on the bucket
    ├── KernelError                 an operator cannot go on, as when a sum leaves its type
    ├── DataLost                    records that a node has not read yet are gone from the log
    ├── AppError
    │   ├── UnknownName             a node asks for a stream or a column that is not there
    │   ├── DuplicateName
    │   ├── CyclicNodes
    │   ├── MissingSchema
    │   ├── NodeChanged             a node's code no longer fits what it wrote before
    │   ├── ForeignCheckpoint       the checkpoint belongs to another app or node
    │   ├── NodeFailed
    │   └── ViewBehind              a view has not seen a position in time
    ├── JavaMissing                 Spark needs Java 17 or later, and none was found
    └── SparkDied                   Spark's Java process has ended by itself

Each carries a hint: what to do about it.
"""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A hint for a name that is not there, whatever its case; "" when none is like it."""
    known = {each.lower(): each for each in names}
    near = difflib.get_close_matches(name.lower(), known, n=1)
    return f"did you mean {known[near[0]]!r}?" if near else ""


class PenstockError(Exception):
    """The root of the tree. `str()` gives the message, then the hint on a line of its own."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class InvalidInput(PenstockError, ValueError):
    pass


class InvalidTopic(InvalidInput):
    pass


class InvalidPolicy(InvalidInput):
    pass


class InvalidDuration(InvalidInput):
    pass


class InvalidSchema(InvalidInput):
    pass


class InvalidSql(InvalidInput):
    pass


class LogError(PenstockError):
    pass


class TopicNotFound(LogError):
    pass


class TopicExists(LogError):
    pass


class PartitionNotFound(LogError):
    pass


class OffsetOutOfRange(LogError):
    """The offset asked for lies outside `start` (included) to `end` (excluded)."""

    def __init__(self, message: str, *, start: int, end: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.start = start
        self.end = end


class RecordTooLarge(LogError):
    pass


class CorruptBatch(LogError):
    """Bytes that do not check out; `file` and `position` say where, when they are on disk."""

    def __init__(self, message: str, *, file: str = "", position: int = -1, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.file = file
        self.position = position


class StorageFailed(LogError):
    pass


class DiskFull(StorageFailed):
    pass


class LogLocked(LogError):
    pass


class LogClosed(LogError):
    pass


class LogUnreachable(LogError):
    pass


class GroupNotFound(LogError):
    pass


class GroupNotEmpty(LogError):
    pass


class SequenceError(LogError):
    pass


class OutOfOrderSequence(SequenceError):
    pass


class StaleProducerEpoch(SequenceError):
    pass


class VersionConflict(LogError):
    """The last offset is `actual`, -1 where there is none, and not the one expected."""

    def __init__(self, message: str, *, actual: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.actual = actual


class WriterFenced(LogError):
    pass


class StateError(PenstockError):
    pass


class StateMissing(StateError):
    pass


class StateDamaged(StateError):
    pass


class StateMismatch(StateError):
    pass


class StateLocked(StateError):
    pass


class KernelError(PenstockError):
    pass


class DataLost(PenstockError):
    pass


class AppError(PenstockError):
    pass


class UnknownName(AppError):
    pass


class DuplicateName(AppError):
    pass


class CyclicNodes(AppError):
    pass


class MissingSchema(AppError):
    pass


class NodeChanged(AppError):
    pass


class ForeignCheckpoint(AppError):
    pass


class NodeFailed(AppError):
    pass


class ViewBehind(AppError):
    pass


class JavaMissing(PenstockError):
    pass


class SparkDied(PenstockError):
    pass
