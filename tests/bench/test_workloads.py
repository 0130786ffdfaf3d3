"""The workloads on the log itself; what they measure is not looked at, only that they do."""

import pytest

from penstock import Log
from penstock.bench.figures import ROWS
from penstock.bench.workloads import QUICK, WORKLOADS, Workload
from penstock.errors import LogError
from penstock.testing import LogServerProcess


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_each_fills_its_rows_and_removes_its_topic(
    workload: Workload, log_server: LogServerProcess
) -> None:
    measured = workload.measure(log_server.address, QUICK)

    assert measured
    assert set(measured) <= set(ROWS)
    assert all(value > 0 for value in measured.values())
    with Log.connect(log_server.address) as log:
        assert log.topics() == []


def test_what_goes_wrong_in_the_client_is_reported(
    log_server: LogServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.bench.workloads.SMALL", -1)  # no record has so few bytes

    with pytest.raises(LogError, match=r"(?s)'sync produce'.*ValueError"):
        WORKLOADS[2].measure(log_server.address, QUICK)
