"""What a view cannot be, found before anything is planned, with the nearest way to write it."""

from sqlglot import exp

from penstock.errors import InvalidSql
from penstock.streams.sql.parse import Source
from penstock.streams.sql.plan import Expr

# What is said of the parts of a SELECT that have no place in a view: the words to underline, why,
# and what to write instead.
_CLAUSES = {
    "laterals": (
        ("LATERAL",),
        "LATERAL makes rows of a row",
        "derive a stream with Spark's explode, and read that",
    ),
    "sort": (("SORT",), "SORT BY says how work is cut", "leave it out; a view has no order"),
    "cluster": (("CLUSTER",), "CLUSTER BY says how work is cut", "leave it out"),
    "distribute": (("DISTRIBUTE",), "DISTRIBUTE BY says how work is cut", "leave it out"),
    "match": (
        ("MATCH_RECOGNIZE",),
        "patterns of events are no part of a view",
        "derive a stream of matches, and read that",
    ),
    "locks": (("FOR",), "a view locks nothing", "leave it out"),
    "into": (("INTO",), "a view is written by its own name", "leave INTO out"),
    "connect": (("CONNECT", "START"), "CONNECT BY follows rows without end", "join level by level"),
    "windows": (("WINDOW",), "named windows are not known", "write OVER (PARTITION BY ...)"),
    "sample": (
        ("TABLESAMPLE",),
        "a sample is another one each time",
        "WHERE pmod(hash(id), 10) = 0 takes a tenth that stays the same",
    ),
}
_KNOWN = {
    "with_", "kind", "expressions", "hint", "distinct", "from_", "where", "group", "having",
    "joins", "order", "limit", "offset", "qualify", "operation_modifiers", "exclude",
}  # fmt: skip

# Functions by the names that Spark or the parser has for them.
_CHANGING = {
    "curdate", "current_catalog", "current_database", "current_date", "current_datetime",
    "current_schema", "current_time", "current_timestamp", "current_timezone", "current_user",
    "current_version", "getdate", "input_file_block_length", "input_file_block_start",
    "input_file_name", "java_method", "localtime", "localtimestamp", "monotonically_increasing_id",
    "now", "rand", "randn", "random", "randstr", "reflect", "session_user", "shuffle",
    "spark_partition_id", "sysdate", "try_reflect", "uniform", "user", "uuid", "version",
}  # fmt: skip
_GENERATORS = {
    "explode", "explode_outer", "inline", "inline_outer", "json_tuple", "posexplode",
    "posexplode_outer", "stack", "unnest", "variant_explode", "variant_explode_outer",
}  # fmt: skip


def refuse_unsupported(source: Source, query: exp.Query) -> None:
    for node in query.walk():
        if isinstance(node, exp.Select):
            _check_select(source, node)
        elif isinstance(node, exp.With) and node.args.get("recursive"):
            raise source.refusal(
                "a query that refers to itself has no end that could be kept up to date",
                node,
                "write the levels out, one WITH each",
                "RECURSIVE",
            )
        elif isinstance(node, exp.Join):
            _check_join(source, node)
        elif isinstance(node, exp.Table):
            _check_table(source, node)
        elif isinstance(node, exp.Group):
            _check_group(source, node)
        elif isinstance(node, exp.Lateral):
            raise _several_rows(source, node, "LATERAL")
        elif isinstance(node, exp.Func):
            _check_function(source, node)
        elif isinstance(node, exp.Any | exp.All) and node.find(exp.Query):
            raise source.refusal(
                "a comparison with ANY or ALL rows is not known",
                node,
                "compare with (SELECT min(...)) or (SELECT max(...)), or write IN or EXISTS",
                "ANY",
                "SOME",
                "ALL",
            )


def _check_function(source: Source, node: exp.Func) -> None:
    name = (node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()
    if isinstance(node, exp.StrToUnix) and isinstance(node.this, exp.CurrentTimestamp | None):
        name = "unix_timestamp"  # of no time that is given
    elif name in _GENERATORS:
        raise _several_rows(source, node, name)
    elif name not in _CHANGING:
        return
    raise source.refusal(
        f"{name} gives another answer each time, so rows that were counted could not be taken back",
        node,
        "let it be a column of the rows, set where they are made; what is recent can be asked for "
        "when the view is read",
        name,
    )


def _several_rows(source: Source, node: Expr, word: str) -> InvalidSql:
    return source.refusal(
        "this makes several rows of one",
        node,
        "derive a stream with Spark's explode, and read that",
        word,
    )


def _check_select(source: Source, select: exp.Select) -> None:
    for name, value in select.args.items():
        if not value or name in _KNOWN:
            continue
        words, message, hint = _CLAUSES.get(
            name, ((name.rstrip("_").upper(),), f"{name.rstrip('_')} is not known", "leave it out")
        )
        part = value[0] if isinstance(value, list) else value
        node = part if isinstance(part, exp.Expr) else None
        raise source.refusal(message, node, hint, *words)
    if select.args.get("from_") is None:
        raise source.refusal(
            "this reads no table", select, "a view is over streams, tables or other views: FROM ..."
        )
    if select.args.get("kind"):
        raise source.refusal(
            f"SELECT AS {select.args['kind']} is not known", select, "select struct(...)"
        )


def _check_join(source: Source, join: exp.Join) -> None:
    if join.method:
        raise source.refusal(
            f"{join.method} JOIN goes by what columns there happen to be",
            join,
            "name them: JOIN ... USING (id)",
            join.method,
        )
    if join.args.get("match_condition"):
        raise source.refusal("MATCH_CONDITION is not known", join, "write it in ON")


def _check_table(source: Source, table: exp.Table) -> None:
    if table.args.get("pivots"):
        raise source.refusal(
            "PIVOT makes columns of values",
            table,
            "write each column: sum(amount) FILTER (WHERE kind = 'a') AS a",
            "PIVOT",
            "UNPIVOT",
        )
    if table.args.get("sample"):
        words, message, hint = _CLAUSES["sample"]
        raise source.refusal(message, table, hint, *words)
    if table.args.get("version") or table.args.get("when"):
        raise source.refusal(
            "a view is of what there is now", table, "read another view as of then", "VERSION",
            "TIMESTAMP",
        )  # fmt: skip
    if table.args.get("joins"):
        raise source.refusal(
            "joins in parentheses are not known", table, "write (SELECT * FROM a JOIN b ...) AS ab"
        )


def _check_group(source: Source, group: exp.Group) -> None:
    several = (
        *group.find_all(exp.Rollup, exp.Cube, exp.GroupingSets),
        *(group.args.get(each) for each in ("rollup", "cube", "grouping_sets", "totals")),
    )
    if any(several):
        raise source.refusal(
            "several groupings at once are not known",
            group,
            "write one SELECT for each, and UNION ALL between them",
            "ROLLUP",
            "CUBE",
            r"GROUPING\s+SETS",
        )
