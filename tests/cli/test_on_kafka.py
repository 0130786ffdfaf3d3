"""The same commands on Apache Kafka."""

import json
from pathlib import Path

from click.testing import CliRunner

from penstock.cli import cli
from penstock.testing import KafkaProcess
from tests.cli.running import run


def test_a_session_on_kafka(kafka: KafkaProcess, topic: str, group: str, tmp_path: Path) -> None:
    def penstock(*arguments: str) -> str:
        done = CliRunner().invoke(cli, [*arguments, "--server", kafka.address])
        assert done.exit_code == 0, done.output
        return done.stdout

    path = tmp_path / "orders"
    path.write_text("".join(f'{{"id": {n}}}\n' for n in range(100)))
    assert penstock("topics", "create", topic, "--partitions", "2", "--set", "retention.ms=1d") == (
        f"created {topic} with 2 partitions\n"
    )
    assert penstock("produce", topic, str(path), "--key-field", "id").startswith(
        f"appended 100 records to {topic}\n"
    )
    [listed] = [line.split() for line in penstock("topics").splitlines() if topic in line]
    assert listed == [topic, "2", "100", "os", "1d"]
    described = penstock("topics", "describe", topic)
    assert described.startswith(f"{topic}: 100 records, id ")
    assert "*  retention.ms" in described

    arguments = ("tail", topic, "--server", kafka.address, "--from-start", "--no-follow")
    shown = [json.loads(line) for line in run(*arguments).stdout.splitlines()]
    assert sorted(int(each["key"]) for each in shown) == list(range(100))
    assert len(run(*arguments, "--group", group).stdout.splitlines()) == 100
    assert [group, "Empty", "0", "0"] in [line.split() for line in penstock("groups").splitlines()]
    penstock("groups", "reset", group, "--topic", topic, "--to-start")
    lags = penstock("groups", "describe", group).splitlines()[3:]
    assert sum(int(line.split()[4]) for line in lags) == 100
    penstock("groups", "delete", group, "--yes")
    penstock("topics", "alter", topic, "--partitions", "3", "--unset", "retention.ms")
    assert penstock("topics", "delete", topic, "--yes") == f"deleted {topic} with 100 records\n"
    assert topic not in penstock("topics")
