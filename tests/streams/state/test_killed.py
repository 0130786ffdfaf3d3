import random
import signal
import subprocess
import sys
from pathlib import Path

from penstock.streams.state import clean
from tests.streams.state.hosts import Host
from tests.streams.state.killed import SCHEMA, expected, newest

ROUNDS = 30


def test_steps_that_are_killed_anywhere(tmp_path: Path) -> None:
    host = Host(tmp_path, SCHEMA)
    ends = []
    with subprocess.Popen(
        [sys.executable, "-m", "tests.streams.state.killed"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for seed in random.Random(5).sample(range(10**6), ROUNDS):
            process.stdin.write(f"{tmp_path} {seed}\n")
            ends.append(int(process.stdout.readline()))
            assert ends[-1] in (-signal.SIGKILL, -signal.SIGALRM)
            if seed % 5 == 0:
                clean(host.address, "sum", 1, newest(host) - 2)
        process.stdin.close()

    assert ends.count(-signal.SIGKILL) > 5
    assert ends.count(-signal.SIGALRM) > 5
    assert newest(host) > 5
    assert host.contents(newest(host)) == expected(newest(host))
    host.lose_arena()
    assert host.contents(newest(host)) == expected(newest(host))
