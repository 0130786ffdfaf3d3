"""Where Spark finds its own Python: as installed, not in an archive.

Spark puts an archive of PySpark's sources in front of every Python process that it starts, and a
dozen of those start with an app. Python compiles what it imports from an archive anew each time,
about a second for each process. So Spark is given a home without that archive, whose other parts
are links; then PySpark is imported from where it is installed, compiled already.
"""

import hashlib
import os
from pathlib import Path

import pyspark

from penstock.streams.spark.cached import made_once

_ARCHIVES = "python"


def prepare_home() -> None:
    """Has the Spark that this process starts use such a home, unless SPARK_HOME names one."""
    os.environ.setdefault("SPARK_HOME", str(spark_home()))


def spark_home() -> Path:
    """The home for the PySpark that is installed, in the user's cache; made when it is missing.

    Where the cache cannot be written it is the installed one: then only time is lost.
    """
    installed = Path(pyspark.__file__).parent

    def fill(fresh: Path) -> None:
        for part in installed.iterdir():
            if part.name != _ARCHIVES and part.suffix != ".py":
                (fresh / part.name).symlink_to(part)

    name = hashlib.blake2b(str(installed).encode(), digest_size=6).hexdigest()
    try:
        return made_once(f"spark-{pyspark.__version__}-{name}", fill)
    except OSError:
        return installed
