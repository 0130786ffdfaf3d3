"""`make setup` where one of the installers does not work."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# What makes the environment: it writes down what it was asked for, and so does the Python in it.
PYTHON = """#!/bin/sh
mkdir -p .venv/bin
printf '#!/bin/sh\\necho "python $*" >>asked\\n' >.venv/bin/python
printf '#!/bin/sh\\necho "uv $*" >>asked\\nexit {status}\\n' >.venv/bin/uv
chmod +x .venv/bin/python .venv/bin/uv
"""


def setup(folder: Path, status: int) -> list[str]:
    """What is asked of Python and of uv, which ends with this status."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    python = folder / "python"
    python.write_text(PYTHON.format(status=status))
    python.chmod(0o755)
    command = ("make", "setup", f"PYTHON={python}")
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)
    return (folder / "asked").read_text().splitlines()


@pytest.mark.parametrize(("status", "by_pip"), [(0, False), (2, True)])
def test_pip_installs_what_uv_cannot(tmp_path: Path, status: int, by_pip: bool) -> None:
    """Behind a mirror, for instance: uv does not read pip's settings."""
    asked = setup(tmp_path, status)

    assert any(line.startswith("uv pip install") for line in asked)
    everything = [line for line in asked if "pip install" in line and "-e .[dev]" in line]
    assert any(line.startswith("python -m pip") for line in everything) == by_pip
    assert (tmp_path / ".venv" / "installed").exists()
