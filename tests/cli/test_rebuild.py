"""`penstock rebuild` of an app that runs, whose part is played by the test."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock import Log
from penstock.cli import cli
from penstock.runtime.asking import Answer, Asked, Question
from penstock.runtime.folders import app_folder
from penstock.runtime.status import AppStatus
from penstock.testing import wait_until
from tests.cli.running import OnTerminal, Running
from tests.runtime.test_views import Shop


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with Log.open(tmp_path) as log:
        shop = Shop(log, tmp_path)
        shop.process(0, 0, {"NL": {"total": 2.5, "orders": 1}})
        shop.project()
        yield shop


def rebuild(shop: Shop, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["rebuild", *arguments, "--data", str(shop.folder)])


def tell(shop: Shop, **facts: object) -> None:
    """What the app tells of its node; those that begin with `app_` are its own."""
    home = app_folder(shop.folder, "shop")
    status = AppStatus.read(home)
    assert status is not None
    for name, fact in facts.items():
        place = status if name.startswith("app_") else status.nodes[0]
        setattr(place, name.removeprefix("app_"), fact)
    status.write(home)


@contextmanager
def app(shop: Shop, act: Callable[[Question], Answer | None]) -> Iterator[list[Question]]:
    """Answers what is asked, unless it has no answer."""
    asked, seen, over = Asked(app_folder(shop.folder, "shop")), [], threading.Event()

    def run() -> None:
        while not over.wait(0.01):
            if question := asked.next():
                seen.append(question)
                if (answer := act(question)) is not None:
                    asked.answer(question, answer)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def test_it_waits_until_the_new_version_has_joined(shop: Shop, tmp_path: Path) -> None:
    file = tmp_path / "other.py"
    file.write_text("")

    def act(question: Question) -> Answer:
        tell(shop, state="building", query="@beside-1", built=4, to_build=9)
        threading.Timer(0.4, lambda: tell(shop, state="waiting")).start()
        threading.Timer(1.2, lambda: tell(shop, query="main")).start()
        return Answer({"revenue": 1}, ["revenue"], ["old"])

    with app(shop, act) as seen:
        done = rebuild(shop, "revenue", "--file", str(file))
    assert done.exit_code == 0, done.output
    assert shop.views.status().nodes[0].query == "main"
    assert done.stdout == "revenue: version 1 is shown, 1 row\n"
    assert "app shop builds revenue beside the others" in done.stderr
    assert "old: no longer in the file" in done.stderr
    assert [(each.nodes, each.file) for each in seen] == [(["revenue"], str(file))]


def test_a_refusal_is_shown_with_its_hint(shop: Shop) -> None:
    with app(shop, lambda question: Answer(error="it is not what it was", hint="name both")):
        refused = rebuild(shop, "revenue")
    assert refused.exit_code == 1
    assert refused.stderr == "error: it is not what it was\n  hint: name both\n"


def test_a_node_that_only_the_file_has_is_asked_for(shop: Shop) -> None:
    with app(shop, lambda question: Answer(error="no such node")) as seen:
        assert "no such node" in rebuild(shop, "sizes").stderr
    assert seen[0].nodes == ["sizes"]


def test_a_node_that_keeps_failing_ends_the_waiting(shop: Shop) -> None:
    def act(question: Question) -> Answer:
        tell(shop, state="failed", error="ValueError: right out", retry_at=None, generation=2)
        return Answer({"revenue": 2}, ["revenue"])

    with app(shop, act):
        failed = rebuild(shop, "revenue")
    assert failed.exit_code == 1
    assert "revenue fails, and version 1 is kept: ValueError: right out" in failed.stderr
    assert "penstock why revenue" in failed.stderr


def test_an_app_that_ends_meanwhile(shop: Shop) -> None:
    def act(question: Question) -> Answer:
        tell(shop, app_stopped=True, app_error="Py4JNetworkError: gone")
        return Answer({"revenue": 2}, ["revenue"])

    with app(shop, act):
        failed = rebuild(shop, "revenue")
    assert failed.exit_code == 1
    assert "app shop has ended meanwhile: Py4JNetworkError: gone" in failed.stderr
    assert "goes on with what was begun" in failed.stderr


def test_an_app_that_ends_before_it_has_begun(shop: Shop) -> None:
    def act(question: Question) -> None:
        tell(shop, app_stopped=True)

    with app(shop, act):
        failed = rebuild(shop, "revenue")
    assert failed.exit_code == 1
    assert "--rebuild revenue does" in failed.stderr


def test_what_does_not_go_with_an_app_that_runs(shop: Shop) -> None:
    assert rebuild(shop, "revenue", "--spark", "local").exit_code == 2
    assert "penstock rebuild revenue" in rebuild(shop, "--help").stdout


def test_ctrl_c_before_the_app_has_begun(shop: Shop) -> None:
    folder = app_folder(shop.folder, "shop") / "@asked"
    with Running("rebuild", "revenue", "--data", str(shop.folder)) as command:
        wait_until(lambda: any(folder.glob("*.question")), within=30, what=command.text)
        assert command.interrupt(signal.SIGINT) == 130
        assert "nothing was begun" in command.text
    assert not any(folder.glob("*"))


def test_ctrl_c_leaves_the_app_to_it(shop: Shop) -> None:
    def act(question: Question) -> Answer:
        tell(shop, state="building", query="@beside-1", built=450, to_build=1_000)
        return Answer({"revenue": 1}, ["revenue"])

    arguments = ("rebuild", "revenue", "--data", str(shop.folder))
    with app(shop, act), OnTerminal(*arguments) as command:
        command.shows("450/1000")
        assert command.interrupt(signal.SIGINT) == 130
        said = "app shop goes on building revenue; penstock status shows how far it is"
        assert said in " ".join(command.plain.split())
        assert "Traceback" not in command.plain
