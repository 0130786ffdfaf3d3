"""Where Spark finds its own Python: as installed, not in an archive.

Spark puts an archive of PySpark's sources in front of every Python process that it starts, and a
dozen of those start with an app. Python compiles what it imports from an archive anew each time,
about a second for each process. So Spark is given a home without that archive, whose other parts
are links; then PySpark is imported from where it is installed, compiled already.
"""

import hashlib
import os
import tempfile
from pathlib import Path

import pyspark

_ARCHIVES = "python"


def prepare_home() -> None:
    """Has the Spark that this process starts use such a home, unless SPARK_HOME names one."""
    os.environ.setdefault("SPARK_HOME", str(spark_home()))


def spark_home() -> Path:
    """The home for the PySpark that is installed, in the user's cache; made when it is missing."""
    installed = Path(pyspark.__file__).parent
    name = hashlib.blake2b(str(installed).encode(), digest_size=6).hexdigest()
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"
    home = caches / f"spark-{pyspark.__version__}-{name}"
    if home.is_dir():
        return home
    caches.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=caches, prefix=f"{home.name}."))
    for part in installed.iterdir():
        if part.name != _ARCHIVES and part.suffix != ".py":
            (fresh / part.name).symlink_to(part)
    try:
        fresh.rename(home)
    except OSError:  # another process was quicker
        for link in fresh.iterdir():
            link.unlink()
        fresh.rmdir()
    return home
