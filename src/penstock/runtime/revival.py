"""Spark's Java, when it has died: noticed, told, and started again, a little later each time."""

import logging

from penstock import clock
from penstock.errors import PenstockError, SparkDied
from penstock.runtime.spark import AppSpark
from penstock.runtime.status import AppStatus

logger = logging.getLogger(__name__)

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
_HINT = "spark.log or standard error has its last words; the kernel's log tells if memory ran out"


class Revival:
    """Used by the thread that supervises the app. `in_vain` counts the deaths since a batch was
    last committed."""

    def __init__(self, spark: AppSpark, status: AppStatus) -> None:
        self._spark = spark
        self._status = status
        self._at: float | None = None  # when Spark is started again, None while it is there
        self._batches: dict[str, int] = {}
        self._error = ""
        self.in_vain = 0

    def is_needed(self) -> bool:
        """Whether Spark is gone. Raises SparkDied if the app cannot start it."""
        if self._at is None and (how := self._spark.death()):
            self._note(how)
        return self._at is not None

    def _note(self, how: str) -> None:
        said = f"Spark died ({how})"
        if not self._spark.is_own:
            raise SparkDied(
                f"{said}, whose session was given to the app",
                hint="let the app open its own, which it starts again",
            )
        batches = {node.name: node.batch for node in self._status.nodes}
        self.in_vain = 1 if batches != self._batches else self.in_vain + 1
        self._batches = batches
        self._status.spark_died, self._status.spark_died_ms = how, clock.now_ms()
        pause = min(_FIRST_PAUSE * 2 ** (self.in_vain - 1), _LONGEST_PAUSE)
        self._at = clock.monotonic() + pause
        logger.error("%s, and is started again in %.0f s", said, pause)
        for node in self._status.nodes:
            node.restarts += 1
        self._error = f"SparkDied: {said}\n  hint: {_HINT}"

    def tell(self) -> None:
        """Notes of all nodes why they do not go on."""
        for node in self._status.nodes:
            node.turn("starting")
            node.error = self._error

    def succeeds(self) -> bool:
        """Starts Spark, if it is time; false when it is not, or it did not start."""
        if self._at is None or clock.monotonic() < self._at:
            return False
        try:
            self._spark.start_again()
        except PenstockError as error:
            self.in_vain += 1
            pause = min(_FIRST_PAUSE * 2 ** (self.in_vain - 1), _LONGEST_PAUSE)
            self._at = clock.monotonic() + pause
            logger.error("%s: once more in %.0f s", error.message, pause)
            self._error = f"{type(error).__name__}: {error}"
            self.tell()
            return False
        self._at = None
        logger.info("Spark runs again")
        return True
