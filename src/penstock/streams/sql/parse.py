"""The text of a view: parsed, and refused where it asks for what cannot be kept up to date."""

import re
from collections.abc import Iterable, Sequence

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token

from penstock.errors import InvalidSql, did_you_mean
from penstock.streams.sql.plan import Expr

WINDOWS = ("window", "session_window")
_TABLE_FUNCTIONS = ("tumble", "hop", "session")


class ViewDialect(Spark):
    """Spark's, in which `window` is a function, and no clause that names windows, and a quote that
    is there twice is one, as it is since Spark 4."""

    class Tokenizer(Spark.Tokenizer):
        STRING_ESCAPES = ["\\", "'", '"']  # noqa: RUF012 - as sqlglot declares it
        KEYWORDS = {  # noqa: RUF012 - as sqlglot declares it
            word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if word != "WINDOW"
        }


class Source:
    """A text with the place of its parts, for errors."""

    def __init__(self, text: str) -> None:
        self.text = text

    def refusal(self, message: str, node: Expr | None, hint: str, *words: str) -> InvalidSql:
        """An error that shows where: the first of `words` that stands there, or the whole node."""
        span = self._span(node, words)
        return InvalidSql(f"{message}{self._underlined(*span)}" if span else message, hint=hint)

    def _span(self, node: Expr | None, words: Sequence[str]) -> tuple[int, int] | None:
        places = [
            (each.meta["start"], each.meta["end"] + 1)
            for each in (node.walk() if node is not None else ())
            if "start" in each.meta
        ]
        for word in words:
            found = [
                (match.start(), match.end())
                for match in re.finditer(rf"(?i)(?<!\w){word}(?!\w)", self.text)
            ]
            if found and places:
                first = min(start for start, _ in places)
                return min(found, key=lambda span: abs(span[0] - first))
            if found:
                return found[0]
        if not places:
            return None
        return min(start for start, _ in places), max(end for _, end in places)

    def _underlined(self, start: int, end: int) -> str:
        number = self.text.count("\n", 0, start) + 1
        left = self.text.rfind("\n", 0, start) + 1
        right = self.text.find("\n", start)
        line = self.text[left : len(self.text) if right < 0 else right]
        marks = "^" * max(1, min(end, left + len(line)) - start)
        place = f"line {number}: "
        return f"\n  {place}{line}\n  {' ' * (len(place) + start - left)}{marks}"

    def parse(self) -> exp.Query:
        """Raises InvalidSql with the place, for what is no query or cannot be kept up to date."""
        dialect = ViewDialect()
        try:
            tokens = dialect.tokenize(self.text)
            statements = dialect.parser().parse(_without_table_words(tokens), self.text)
        except TokenError as error:
            raise InvalidSql(f"this is no SQL: {error}", hint="is a quote not closed?") from None
        except RecursionError:
            raise InvalidSql(
                "the query is nested too deeply", hint="give its parts names: WITH part AS (...)"
            ) from None
        except ParseError as error:
            raise self._no_sql(error) from None
        found = [each for each in statements if each is not None]
        if len(found) != 1:
            raise InvalidSql(
                f"a view is one query, and here are {len(found)}",
                hint="give each a name of its own",
            )
        query = found[0]
        if isinstance(query, exp.Subquery):
            query = query.unnest()
        if not isinstance(query, exp.Query):
            raise self.refusal(
                "a view is a query",
                query,
                "begin with SELECT or WITH; what it reads is kept elsewhere, in streams and tables",
            )
        return query

    def _no_sql(self, error: ParseError) -> InvalidSql:
        about = error.errors[0] if error.errors else {}
        message = re.sub(r"<class '[\w.]*\.(\w+)'>", r"\1", str(about.get("description", error)))
        message = re.sub(r"<Token .*?text: (.*?), line.*?>", r"\1", message)
        place = ""
        if about.get("line"):
            lines = self.text.splitlines(keepends=True)
            before = sum(len(line) for line in lines[: about["line"] - 1])
            end = before + about["col"]
            place = self._underlined(end - len(about.get("highlight") or " "), end)
        hint = "the dialect is Spark's"
        if re.search(r"(?i)\bsession\s*\(", self.text):
            hint = "sessions are GROUP BY session_window(at, '5 minutes')"
        return InvalidSql(f"this is no SQL: {message}{place}", hint=hint)


def _without_table_words(tokens: list[Token]) -> list[Token]:
    """TUMBLE(TABLE t, ...) without TABLE, which the parser takes for a statement's."""
    kept: list[Token] = []
    words = [token.text.lower() for token in tokens]
    for number, token in enumerate(tokens):
        before = words[max(0, number - 2) : number]
        if words[number] == "table" and before[1:] == ["("] and before[0] in _TABLE_FUNCTIONS:
            continue
        kept.append(token)
    return kept


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint for a name that is not there."""
    names = list(names)
    return did_you_mean(name, names) or (
        f"there are {', '.join(names)}" if names else "there are none"
    )
