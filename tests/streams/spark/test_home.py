import os
from pathlib import Path

import pyspark
import pytest

from penstock.streams.spark.home import prepare_home, spark_home


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    return tmp_path / "penstock"


def test_the_home_has_all_that_is_installed_but_the_archives() -> None:
    home = spark_home()

    assert (home / "bin" / "spark-submit").exists()
    assert any((home / "jars").glob("spark-core*.jar"))
    assert not list(home.glob("**/pyspark.zip"))
    assert (Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip").exists()


def test_it_is_made_once(caches: Path) -> None:
    first = spark_home()
    made = first.stat().st_mtime_ns

    assert spark_home() == first
    assert first.stat().st_mtime_ns == made
    assert list(caches.iterdir()) == [first]


def test_the_slower_of_two_takes_what_the_other_made(
    caches: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = spark_home()
    is_dir, answers = Path.is_dir, [False]  # it is not there yet when it is first looked for
    monkeypatch.setattr(
        Path, "is_dir", lambda self: answers.pop() if self == home and answers else is_dir(self)
    )

    assert spark_home() == home
    assert list(caches.iterdir()) == [home]


def test_a_home_that_was_named_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "elsewhere")

    prepare_home()

    assert os.environ["SPARK_HOME"] == "elsewhere"


def test_without_a_cache_it_is_the_installed_one(caches: Path) -> None:
    caches.write_text("a file, where the folder should be")

    assert spark_home() == Path(pyspark.__file__).parent
