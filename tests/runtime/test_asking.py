from pathlib import Path

import pytest

from penstock.errors import AppError
from penstock.runtime.asking import Answer, Asked, Asking


def test_a_question_is_answered_once(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    assert asked.next() is None
    asking = Asking(tmp_path, ["totals"], "app.py")
    assert asking.answer() is None
    question = asked.next()
    assert question is not None
    assert (question.nodes, question.file) == (["totals"], "app.py")
    assert asked.next() is None
    assert not asking.withdraw(), "it is taken"
    asked.answer(question, Answer({"totals": 2}, ["totals"], ["sizes"]))
    assert asking.answer() == Answer({"totals": 2}, ["totals"], ["sizes"])
    assert list((tmp_path / "@asked").iterdir()) == []


def test_a_refusal_is_raised_with_its_hint(tmp_path: Path) -> None:
    asking, asked = Asking(tmp_path, ["totals"]), Asked(tmp_path)
    question = asked.next()
    assert question is not None
    asked.answer(question, Answer(error="no", hint="ask otherwise"))
    with pytest.raises(AppError, match="no") as refused:
        asking.answer()
    assert refused.value.hint == "ask otherwise"


def test_what_is_withdrawn_or_forgotten_is_not_asked(tmp_path: Path) -> None:
    assert Asking(tmp_path, ["totals"]).withdraw()
    assert Asked(tmp_path).next() is None
    Asking(tmp_path, ["totals"])
    Asked(tmp_path).forget()
    assert Asked(tmp_path).next() is None
