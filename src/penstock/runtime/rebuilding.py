"""Questions to an app that runs, taken one after the other and made ready beside its queries."""

import logging
import threading
from pathlib import Path

from penstock.errors import AppError, PenstockError
from penstock.runtime.asking import Answer, Asked, Question
from penstock.runtime.declarations import View
from penstock.runtime.installation import Installation
from penstock.runtime.renewal import Renewal, prepare
from penstock.runtime.watch import cause_of

logger = logging.getLogger(__name__)


class Rebuilds:
    """Used by the thread that supervises the app. To load a file and to build its nodes takes
    seconds, for which it has a thread of its own."""

    def __init__(self, installation: Installation, home: Path, file: str) -> None:
        """`file` is the one that the app was run from, "" if that is not known."""
        self._installation = installation
        self._asked = Asked(home)
        self._file = file
        self._question: Question | None = None
        self._thread: threading.Thread | None = None
        self._ready: Renewal | None = None

    @property
    def is_preparing(self) -> bool:
        """Whether nodes are being tried: nothing is to move meanwhile."""
        return self._thread is not None

    def ready(self) -> Renewal | None:
        """What is to be done now, and answered then; it never waits."""
        if self._thread is None:
            self._question = self._asked.next()
            if self._question is not None:
                self._thread = threading.Thread(
                    target=self._prepare, args=(self._question,), name="penstock-rebuild"
                )
                self._thread.daemon = True
                self._thread.start()
            return None
        if self._thread.is_alive():
            return None
        self._thread = None
        ready, self._ready = self._ready, None
        return ready

    def _prepare(self, question: Question) -> None:
        try:
            if not (file := question.file or self._file):
                raise AppError(
                    f"the file that makes app {self._installation.app.name!r} is not known",
                    hint="name it: --file app.py",
                )
            self._ready = prepare(self._installation, Path(file), question.nodes)
        except PenstockError as error:
            self._refuse(question, error.message, error.hint)
        except Exception as error:  # Spark's, for instance: whoever asked is to be told all
            self._refuse(question, cause_of(error), "")

    def _refuse(self, question: Question, message: str, hint: str) -> None:
        asked = ", ".join(question.nodes)
        logger.warning("%s is not built anew, and all goes on: %s", asked, message)
        self._asked.answer(question, Answer(error=message, hint=hint))

    def done(self, building: dict[str, int], renewal: Renewal) -> None:
        if self._question is not None:
            views = [n for n in building if isinstance(renewal.app.nodes[n], View)]
            self._asked.answer(self._question, Answer(building, views, list(renewal.removed)))

    def failed(self, error: Exception) -> None:
        if self._question is not None:
            self._refuse(self._question, cause_of(error), "")
