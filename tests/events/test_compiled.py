from typing import Any

import numba
import pytest

from penstock.events.compiled import kernel


def test_kernels_do_without_a_place_to_keep_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def double(number: int) -> int:
        return 2 * number

    monkeypatch.setattr(numba.config, "CACHE_LOCATOR_CLASSES", "IPythonCacheLocator")
    twice: Any = kernel(double)
    assert twice(4) == 8
    assert twice.stats.cache_path is None
