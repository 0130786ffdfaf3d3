import io

from rich.console import Console
from rich.spinner import Spinner
from rich.text import Text

from penstock.cli.run import Screen, Shown
from penstock.clock import now_ms
from tests.runtime.statuses import a_node, an_app


def a_console() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=80, height=24)


def written(console: Console) -> int:
    assert isinstance(console.file, io.StringIO)
    return console.file.tell()


def test_nothing_is_drawn_when_nothing_is_new() -> None:
    console = a_console()
    with Screen(Text("first"), console=console, auto_refresh=False) as live:
        live.refresh()
        before = written(console)
        live.refresh()
        assert written(console) == before
        live.update(Text("second"))
        live.refresh()
        after = written(console)
        assert after > before
        console.size = (60, 24)
        live.refresh()
        assert written(console) > after
        live.refresh()
        before = written(console)
    assert written(console) > before  # what is left on the screen


def test_what_moves_is_drawn_each_time() -> None:
    console = a_console()
    with Screen(Spinner("dots", "starting"), console=console, auto_refresh=False) as live:
        for _ in range(3):
            before = written(console)
            live.refresh()
            assert written(console) > before


def test_an_idle_app_is_laid_out_once() -> None:
    live = Screen(Text(), console=a_console(), auto_refresh=False)
    shown = Shown(live)
    started = now_ms() - 10 * 3_600_000  # told in hours and minutes
    status = an_app(a_node(), started_ms=started)
    shown.update(status)
    first = live.get_renderable()
    status.written_ms += 1_000
    shown.update(status)
    assert live.get_renderable() is first
    status.nodes[0].state = "running"
    shown.update(status)
    assert live.get_renderable() is not first
