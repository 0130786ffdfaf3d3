from pathlib import Path

from penstock import Log, Record
from penstock.testing import LogServerProcess


def test_a_topic_made_again_inherits_no_offsets_of_one_deleted_beside_the_server(
    tmp_path: Path,
) -> None:
    with LogServerProcess(tmp_path) as server:
        with Log.connect(server.address) as log:
            log.create("orders")
            log.append("orders", [Record(value=b"a")])
            log.commit("readers", {("orders", 0): 1})
        server.stop()
        with Log.open(tmp_path) as log:  # without a server there are no groups to be told
            log.delete("orders")
        server.restart()
        with Log.connect(server.address) as log:
            log.create("orders")
            assert not log.groups() or not log.describe_group("readers").lags
