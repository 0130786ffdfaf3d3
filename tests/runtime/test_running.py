from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from penstock.runtime import running
from penstock.runtime.installation import Installation
from penstock.runtime.running import Supervisor
from penstock.runtime.status import AppStatus
from tests.runtime.statuses import an_app


@pytest.fixture
def supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    """Of an app without nodes, that would tell as often as it is asked to."""
    monkeypatch.setattr(running, "_TELL_EVERY", 0.0)
    installation = SimpleNamespace(queries=[], nodes=[], folders={}, spark=None)
    return Supervisor(cast(Installation, installation), tmp_path, an_app())


def test_a_status_is_written_when_it_has_changed(
    supervisor: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    monkeypatch.setattr(AppStatus, "write", lambda self, folder: written.append(self.views_error))
    for said in ("", "", "no room", "no room", ""):
        supervisor.status.views_error = said
        monkeypatch.setattr(supervisor, "_views", SimpleNamespace(error=said))
        supervisor._tell()
    assert written == ["", "no room", ""]
    monkeypatch.setattr(running, "_TELL_AGAIN", 0.0)
    supervisor._tell()
    assert written == ["", "no room", "", ""]  # it is alive
