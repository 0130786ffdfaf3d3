"""What is asked of an app that runs, and what it answers: files in a folder of its own.

`penstock rebuild` puts a question there and waits for the answer; the app looks into the folder
several times a second, which costs next to nothing while nobody asks.
"""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock import clock
from penstock.errors import AppError
from penstock.log.storage.files import write_atomically

_FOLDER = "@asked"
_QUESTION, _ANSWER = ".question", ".answer"


@dataclass(frozen=True)
class Answer:
    """`building` are the nodes that are built anew, with their generations, `views` those of them
    that can be read, and `removed` nodes that are no more; or there is an `error` with a hint, and
    all is as it was."""

    building: dict[str, int] = field(default_factory=dict)
    views: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    error: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Question:
    """Asks for `nodes` to be built anew as `file` makes them now; "" is the file that the app was
    run from."""

    name: str
    nodes: list[str]
    file: str


class Asking:
    """Of somebody who asks."""

    def __init__(self, home: Path, nodes: list[str], file: str = "") -> None:
        """`home` is the folder of the app."""
        folder = home / _FOLDER
        folder.mkdir(exist_ok=True)
        self._name = f"{clock.now_ms()}-{os.getpid()}"
        self._path = folder / f"{self._name}{_QUESTION}"
        content = asdict(Question(self._name, nodes, file))
        write_atomically(self._path, json.dumps(content).encode(), durably=False)

    def answer(self) -> Answer | None:
        """None as long as there is none. Raises AppError when it was refused."""
        path = self._path.with_suffix(_ANSWER)
        try:
            content: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        path.unlink()
        answer = Answer(**content)
        if answer.error:
            raise AppError(answer.error, hint=answer.hint)
        return answer

    def withdraw(self) -> bool:
        """False when it is too late, as the app has begun with it."""
        try:
            self._path.unlink()
        except FileNotFoundError:
            return False
        return True


class Asked:
    """Of the app: it takes a question, and answers it before it takes the next."""

    def __init__(self, home: Path) -> None:
        self._folder = home / _FOLDER

    def next(self) -> Question | None:
        try:
            with os.scandir(self._folder) as found:
                names = [each.name for each in found if each.name.endswith(_QUESTION)]
        except FileNotFoundError:  # nobody has asked so far
            return None
        for name in sorted(names):
            path = self._folder / name
            try:
                content: dict[str, Any] = json.loads(path.read_text())
                path.unlink()
            except FileNotFoundError:  # it was withdrawn
                continue
            return Question(**content)
        return None

    def answer(self, question: Question, answer: Answer) -> None:
        path = self._folder / f"{question.name}{_ANSWER}"
        write_atomically(path, json.dumps(asdict(answer)).encode(), durably=False)

    def forget(self) -> None:
        """Removes what was asked of a process that is no more, and what nobody waited for."""
        for path in self._folder.glob("*"):
            path.unlink(missing_ok=True)
