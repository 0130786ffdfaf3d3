"""Schemas as text, in Spark's DDL, and as Arrow's, without a JVM.

    parse_schema("id long, at timestamp, tags array<string>, price decimal(10, 2) NOT NULL")

A column's comment is kept in its field's metadata, under b"comment".
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from penstock.errors import InvalidSchema

_SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_SYNONYMS = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
    "dec": "decimal",
    "numeric": "decimal",
}
_NAMES = {kind: name for name, kind in _SIMPLE.items()}
_TYPES = f"{', '.join(_SIMPLE)}, decimal(p, s), array<…>, map<…, …>, struct<…>"

_TOKEN = re.compile(
    r"""\s*(?: (?P<word> \w+ )
             | `(?P<quoted> (?: [^`] | `` )+ )`
             | (?P<text> ' (?: [^'\\] | \\. )* ' | " (?: [^"\\] | \\. )* " )
             | (?P<sign> [<>(),:] )
             | (?P<end> $ ) )""",
    re.VERBOSE | re.DOTALL,
)
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def parse_schema(text: str) -> pa.Schema:
    """Raises InvalidSchema, which shows the text and points at the place."""
    parser = _Parser(text)
    fields = parser.fields(is_last=lambda token: token.kind == "end")
    return pa.schema(fields)


def schema_text(schema: pa.Schema) -> str:
    """The DDL of a schema, from which parse_schema makes the same one.

    Raises InvalidSchema for types that Spark does not have, such as unsigned numbers.
    """
    return ", ".join(_field_text(field, " ") for field in schema)


def _field_text(field: pa.Field, between: str) -> str:
    name = field.name
    if not _PLAIN_NAME.fullmatch(name):
        name = "`" + name.replace("`", "``") + "`"
    comment = (field.metadata or {}).get(b"comment")
    return (
        f"{name}{between}{type_text(field.type)}"
        + ("" if field.nullable else " NOT NULL")
        + ("" if comment is None else f" COMMENT {_quoted(comment.decode())}")
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def type_text(kind: pa.DataType) -> str:
    """A type's name in Spark's DDL."""
    if name := _NAMES.get(kind):
        return name
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{type_text(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_text(kind.key_type)},{type_text(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(_field_text(field, ': ') for field in kind)}>"
    raise InvalidSchema(f"no column can be of Arrow's type {kind}", hint=f"types are {_TYPES}")


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._next = self._read()

    def _read(self) -> _Token:
        found = _TOKEN.match(self._text, self._at)
        if not found:
            at = len(self._text) - len(self._text[self._at :].lstrip())
            raise self._wrong(f"unexpected {self._text[at]!r}", at)
        self._at = found.end()
        kind = found.lastgroup or "end"
        return _Token(kind, found[kind], found.start(kind))

    def _take(self) -> _Token:
        token, self._next = self._next, self._read()
        return token

    def _takes(self, sign: str) -> bool:
        if self._next.kind == "sign" and self._next.text == sign:
            self._take()
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._takes(sign):
            raise self._unexpected(f"{sign!r}")

    def _takes_word(self, word: str) -> bool:
        if self._next.kind == "word" and self._next.text.lower() == word:
            self._take()
            return True
        return False

    def fields(self, is_last: Callable[[_Token], bool]) -> list[pa.Field]:
        """The columns up to the token that ends them, which is taken too."""
        fields: list[pa.Field] = []
        while True:
            place = self._next
            field = self._field()
            if any(field.name == other.name for other in fields):
                raise self._wrong(f"two columns are named {field.name!r}", place.at)
            fields.append(field)
            if is_last(self._next):
                if self._next.kind != "end":
                    self._take()
                return fields
            if not self._takes(","):
                raise self._unexpected("a comma, or the end of the columns")

    def _field(self) -> pa.Field:
        if self._next.kind not in ("word", "quoted"):
            raise self._unexpected("a column's name")
        token = self._take()
        name = token.text.replace("``", "`") if token.kind == "quoted" else token.text
        self._takes(":")
        kind = self._type()
        nullable = True
        if self._takes_word("not"):
            if not self._takes_word("null"):
                raise self._unexpected("NULL after NOT")
            nullable = False
        metadata = None
        if self._takes_word("comment"):
            if self._next.kind != "text":
                raise self._unexpected("a comment in quotes")
            comment = re.sub(r"\\(.)", r"\1", self._take().text[1:-1], flags=re.DOTALL)
            metadata = {"comment": comment}
        return pa.field(name, kind, nullable, metadata)

    def _type(self) -> pa.DataType:
        if self._next.kind != "word":
            raise self._unexpected("a type")
        token = self._take()
        name = _SYNONYMS.get(token.text.lower(), token.text.lower())
        if name in _SIMPLE:
            return _SIMPLE[name]
        match name:
            case "decimal":
                return self._decimal(token.at)
            case "array":
                self._expect("<")
                element = self._type()
                self._expect(">")
                return pa.list_(element)
            case "map":
                self._expect("<")
                key = self._type()
                self._expect(",")
                item = self._type()
                self._expect(">")
                return pa.map_(key, item)
            case "struct":
                self._expect("<")
                return pa.struct(self.fields(lambda end: end.kind == "sign" and end.text == ">"))
        raise self._wrong(f"no type {token.text!r}", token.at)

    def _decimal(self, at: int) -> pa.DataType:
        precision, scale = 10, 0
        if self._takes("("):
            precision = self._number()
            if self._takes(","):
                scale = self._number()
            self._expect(")")
        if not 1 <= precision <= 38 or scale > precision:
            raise self._wrong(f"no decimal({precision}, {scale}), at most 38 digits", at)
        return pa.decimal128(precision, scale)

    def _number(self) -> int:
        if self._next.kind != "word" or not re.fullmatch("[0-9]{1,3}", self._next.text):
            raise self._unexpected("a number")
        return int(self._take().text)

    def _unexpected(self, wanted: str) -> InvalidSchema:
        token = self._next
        found = "the end" if token.kind == "end" else repr(token.text)
        return self._wrong(f"{found} where {wanted} should be", token.at)

    def _wrong(self, what: str, at: int) -> InvalidSchema:
        start = self._text.rfind("\n", 0, at) + 1
        line = self._text[start:].split("\n", 1)[0]
        return InvalidSchema(
            f"the schema cannot be read: {what}\n  {line}\n  {' ' * (at - start)}^",
            hint=f'"id long, at timestamp"; types are {_TYPES}',
        )
