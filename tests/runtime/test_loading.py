import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from penstock.errors import AppError, InvalidInput, PenstockError, UnknownName
from penstock.runtime.app import App
from penstock.runtime.loading import load_again, load_app, users_errors

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "elsewhere")

    def write(text: str, name: str = "app.py") -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def failure(path: Path) -> PenstockError:
    with pytest.raises(PenstockError) as failed:
        load_app(path)
    return failed.value


def test_the_app_is_found(write: Write) -> None:
    file = write(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "import penstock as ps\n"
        "@dataclass\n"
        "class Order:\n"
        "    id: int\n"
        "shop = the_same = ps.App('shop')\n"
        "if __name__ == '__main__':\n"
        "    shop.run()\n"
    )
    app = load_app(file)
    assert isinstance(app, App)
    assert app.name == "shop"


def test_one_of_several_is_chosen(write: Write) -> None:
    file = write("import penstock as ps\na = ps.App('shop')\nb = ps.App('bank')\n")
    assert load_app(file, "bank").name == "bank"
    failed = failure(file)
    assert failed.message == f"{file} makes 2 apps"
    assert failed.hint == "choose: --app shop or --app bank"
    with pytest.raises(UnknownName, match="--app asks for 'shpo'") as unknown:
        load_app(file, "shpo")
    assert unknown.value.hint == "did you mean 'shop'?"


def test_a_file_without_an_app(write: Write) -> None:
    failed = failure(write("import penstock as ps\ndef make():\n    return ps.App('shop')\n"))
    assert "makes no app" in failed.message
    assert "ps.App(" in failed.hint


def test_what_is_no_python() -> None:
    with pytest.raises(InvalidInput, match="is not a Python file"):
        load_app(Path("orders.jsonl"))


def test_modules_beside_it_are_found_here_and_by_workers(write: Write, tmp_path: Path) -> None:
    write("NAME = 'shop'\n", "beside_the_app.py")
    file = write("import penstock as ps, beside_the_app as b\napp = ps.App(b.NAME)\n")
    assert load_app(file).name == "shop"
    assert os.environ["PYTHONPATH"] == f"{tmp_path}{os.pathsep}elsewhere"
    del sys.modules["beside_the_app"]


def test_functions_of_the_file_travel_whole(write: Write) -> None:
    """Workers have no module of the name that the file is loaded under."""
    app = load_app(
        write(
            "import penstock as ps\n"
            "app = ps.App('shop')\n"
            "def twice(n):\n"
            "    return 2 * n\n"
            "app.twice = twice\n"
        )
    )
    twice: Any = vars(app)["twice"]
    packed: bytes = cloudpickle.dumps(twice)  # type: ignore[no-untyped-call]
    name = twice.__module__
    assert name != "__main__"
    del sys.modules[name]
    assert cloudpickle.loads(packed)(21) == 42


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "import penstock as ps\ndef f():\n    return ps.App('a b')\napp = f()\n",
            [
                '  File "{file}", line 4, in <module>',
                "    app = f()",
                '  File "{file}", line 3, in f',
                "    return ps.App('a b')",
                "InvalidTopic: 'a b' is not a topic name",
            ],
        ),
        (
            "import nothing_of_this_name\n",
            [
                '  File "{file}", line 1, in <module>',
                "    import nothing_of_this_name",
                "ModuleNotFoundError: No module named 'nothing_of_this_name'",
            ],
        ),
        (
            "import json\njson.loads('x')\n",
            [
                '  File "{file}", line 2, in <module>',
                "    json.loads('x')",
                "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
            ],
        ),
    ],
)
def test_errors_show_the_lines_of_the_user_alone(
    write: Write, text: str, expected: list[str]
) -> None:
    file = write(text)
    lines = failure(file).message.splitlines()
    lines = [line for line in lines if set(line) - set(" ^~")]
    assert lines == [f"{file} cannot be run", *(line.format(file=file) for line in expected)]


def test_an_error_of_syntax(write: Write) -> None:
    file = write("import penstock as ps\napp = ps.App('shop'\n")
    lines = failure(file).message.splitlines()
    assert lines[1:3] == [f'  File "{file}", line 2', "    app = ps.App('shop'"]
    assert lines[-1] == "SyntaxError: '(' was never closed"


def test_starting_the_app_while_loading_is_refused(write: Write) -> None:
    failed = failure(write("import penstock as ps\napp = ps.App('shop')\napp.run()\n"))
    assert failed.message.endswith("the app is started while its file is still being loaded")
    assert "__main__" in failed.hint


def test_errors_of_penstock_alone_pass() -> None:
    given = AppError("the app is running already", hint="stop it")
    # As if raised by a file of penstock's: all lines that it came through are left out.
    code = compile("with users_errors('x'): raise given", "<frozen penstock>", "exec")
    with pytest.raises(AppError) as failed:
        exec(code, {"users_errors": users_errors, "given": given})
    assert failed.value is given


APP = "import penstock as ps\nimport rates\napp = ps.App('shop')\napp.answer = rates.answer\n"
RATES = "def answer():\n    return {}\n"


@pytest.fixture
def rates(write: Write) -> Iterator[Write]:
    yield lambda number: write(RATES.format(number), "rates.py")
    sys.modules.pop("rates", None)


def test_a_file_is_loaded_again_with_the_modules_beside_it(
    write: Write, rates: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    rates(1)
    file = write(APP)
    before: Any = vars(load_app(file))["answer"]
    path, beside = list(sys.path), os.environ["PYTHONPATH"]
    # In the same second, and as long as before: bytecode would be taken for that of this text.
    rates(2)
    after: Any = vars(load_again(file, "shop"))["answer"]
    assert (before(), after()) == (1, 2)
    assert (sys.path, os.environ["PYTHONPATH"]) == (path, beside)
    # Workers have imported the old one, and would take it for the new one.
    packed: list[bytes] = [cloudpickle.dumps(each) for each in (before, after)]  # type: ignore[no-untyped-call]
    del sys.modules["rates"]
    rates(3)
    assert [cloudpickle.loads(each)() for each in packed] == [1, 2]


@pytest.mark.parametrize("text", ["import rates\n1 / 0\n", "import rates\nimport nothing_at_all\n"])
def test_what_cannot_be_loaded_again_changes_nothing(write: Write, rates: Write, text: str) -> None:
    rates(1)
    file = write(APP)
    app = load_app(file)
    before = {name: sys.modules[name] for name in ("rates", "penstock_app_app")}
    write(text)
    rates(2)
    with pytest.raises(AppError, match="cannot be run"):
        load_again(file, "shop")
    assert {name: sys.modules[name] for name in before} == before
    assert vars(app)["answer"]() == 1
