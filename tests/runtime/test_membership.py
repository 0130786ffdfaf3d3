from pathlib import Path

from penstock.runtime.membership import drop_outdated
from penstock.runtime.query_folder import QueryFolder


def test_queries_beside_are_dropped_when_all_their_nodes_began_anew(tmp_path: Path) -> None:
    queries = {
        "main": {"counts": 1},
        "@beside-1": {"odd": 1, "sizes": 1},
        "@beside-2": {"odd": 2},
        "@beside-3": {"odd": 1, "gone": 4},
    }
    for name, nodes in queries.items():
        QueryFolder(tmp_path, name).settle(2, nodes)
    drop_outdated(tmp_path, {"counts": 2, "odd": 2, "sizes": 2})
    left = {each.name for each in (tmp_path / "@queries").iterdir()}
    assert left == {"main", "@beside-2", "@beside-3"}
