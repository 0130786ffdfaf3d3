from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Log
from tests.serve.scene import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with Log.open(tmp_path) as log:
        yield Scene(log, tmp_path)
