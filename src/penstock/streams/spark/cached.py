"""Folders in the user's cache that are made once and found by all later processes."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"


def made_once(name: str, fill: Callable[[Path], None]) -> Path:
    """The folder of this name, which stands for its contents; `fill` is given it empty.

    It appears whole or not at all; of two processes that make it, one is too late and takes the
    other's. Raises OSError where the cache cannot be written.
    """
    cache = cache_folder()
    made = cache / name
    if made.is_dir():
        return made
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=f"{name}-", suffix=".unfinished") as folder:
        fresh = Path(folder, "made")
        fresh.mkdir()
        fill(fresh)
        try:
            fresh.rename(made)
        except OSError:
            if not made.is_dir():
                raise
    return made
