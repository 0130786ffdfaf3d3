import asyncio
import threading
from typing import Any

import pytest
import uvicorn

from penstock.serve.server import Server


class Counting(Server):
    """Counts how often it looks whether it is to end."""

    def __init__(self) -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            raise AssertionError("nobody asks anything")

        super().__init__(uvicorn.Config(app, port=0, lifespan="off", log_config=None))
        self.ticks: list[bool] = []
        self.is_asleep = threading.Event()

    async def on_tick(self, counter: int) -> bool:
        is_over = await super().on_tick(counter)
        self.ticks.append(is_over)
        asyncio.get_running_loop().call_soon(self.is_asleep.set)
        return is_over


def test_it_sleeps_until_it_is_told_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.serve.server._TICK", 3_600.0)
    server = Counting()
    slept_until_told: list[bool] = []
    sleep = asyncio.sleep

    async def noted_sleep(seconds: float) -> None:  # as between two looks
        slept_until_told.append(server.should_exit)
        await sleep(seconds)

    monkeypatch.setattr(asyncio, "sleep", noted_sleep)
    thread = threading.Thread(target=server.run)
    thread.start()
    assert server.is_asleep.wait(60.0)
    server.end()
    thread.join(60.0)
    assert not thread.is_alive()
    assert server.ticks == [False, True]
    assert all(slept_until_told)
    server.end()  # of one that has ended


def test_it_is_told_to_end_before_it_begins() -> None:
    server = Counting()
    server.end()
    server.run()
    assert server.ticks == []


def test_answers_tell_the_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.serve.server._TICK", 0.001)
    server = Counting()
    thread = threading.Thread(target=server.run)
    thread.start()
    assert server.is_asleep.wait(60.0)
    server.end()
    thread.join(60.0)
    assert [name for name, _ in server.server_state.default_headers] == [b"date", b"server"]
