"""The archive of Spark's classes, and what Java says of one that it cannot use."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pyspark
import pytest

from penstock.streams.spark import class_archive
from penstock.streams.spark.class_archive import java_options
from penstock.streams.spark.java import java_home

JARS = Path(pyspark.__file__).parent / "jars"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation of PySpark with three jars of the real one, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(pyspark, "__file__", str(tmp_path / "__init__.py"))
    jars = tmp_path / "jars"
    jars.mkdir()
    for name in ("scala-library", "scala-compiler", "scala-reflect"):
        for jar in JARS.glob(f"{name}-*.jar"):
            shutil.copy2(jar, jars)
    return jars


def run_java(jars: Path, *options: str) -> subprocess.CompletedProcess[str]:
    program = java_home() / "bin" / "java"
    path = ":".join(str(jar) for jar in sorted(jars.iterdir()))
    command = (str(program), *options, "-cp", path, "scala.tools.nsc.Main", "-version")
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)


def archive(home: Path) -> Path:
    return class_archive._archive(home)


def test_an_archive_is_used_until_the_jars_change(installed: Path) -> None:
    home = java_home()
    assert java_options(home) == ""
    made = archive(home)
    made.parent.mkdir(parents=True)
    run_java(installed, f"-XX:ArchiveClassesAtExit={made}")

    assert str(made) in java_options(home)

    os.utime(next(installed.iterdir()), (0, 0))  # as when the same version is installed again
    assert java_options(home) == ""
    assert archive(home) != made


def test_java_says_nothing_of_an_archive_that_it_cannot_use(installed: Path) -> None:
    """A line of Java's on the standard output would stand among the results of a program."""
    home = java_home()
    made = archive(home)
    made.parent.mkdir(parents=True)
    expected = run_java(installed).stdout
    run_java(installed, f"-XX:ArchiveClassesAtExit={made}")
    options = shlex.split(java_options(home))
    os.utime(next(installed.iterdir()), (0, 0))

    done = run_java(installed, *options)

    assert (done.stdout, done.stderr) == (expected, "")
