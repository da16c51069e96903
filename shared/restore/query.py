"""Questions in SQL about archives, answered by DuckDB in a private, temporary database.

Rows go in as the server's text and get their types inside, where each value is shown to have kept its
text. A column with a value that its type cannot hold exactly stays text, and that is said.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from shared.chain.batch import quote, unescape
from shared.chain.verdict import Broken, Reason
from shared.errors import Code, Refused
from shared.restore.archives import named
from shared.restore.cat import selection
from shared.restore.formats import checked, json_value
from shared.restore.held import batches, temporary
from shared.restore.newest import pieces_of
from shared.restore.query_names import names_for, numbers_in_text, numbers_named
from shared.restore.query_types import TEXT, exact
from shared.restore.rows import lines

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection as Connection

    from shared.restore.cat import Part, Selection
    from shared.restore.held import Held, Links
    from shared.restore.index import Progress
    from shared.restore.query_names import Names

# Text is handed to DuckDB in files of about this size.
STAGE_BYTES = 64 * 1024 * 1024
READ_BUFFER_BYTES = 32 * 1024 * 1024
NUMBERS = frozenset(
    {
        *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE"),
        *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"),
    }
)
# How JSON spells the values of other types, by the Postgres type that is spelled so.
KINDS = {"BOOLEAN": "boolean", "JSON": "json"}
FETCHED = 1000
DETAIL_MAX = 280

CONFIG = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
}
STAGE = "CREATE TABLE main.{stage} ({columns}, {batch} INTEGER)"
READ = (
    "INSERT INTO main.{stage} SELECT * FROM read_csv({file}, auto_detect = false, header = false,"
    " columns = {columns}, delim = ',', quote = '\"', escape = '\"', nullstr = '\\N',"
    " allow_quoted_nulls = false, new_line = '\\n', parallel = false, strict_mode = true,"
    " max_line_size = {longest}, buffer_size = {buffer})"
)
COUNT = "SELECT count(*) FROM main.{stage}"
MISFITS = (
    "SELECT count(*), min({batch}) FROM main.{stage} WHERE {column} IS NOT NULL AND NOT ({fits})"
)
MAKE = "CREATE TABLE {table} AS SELECT {values} FROM main.{stage}"
UNSTAGE = "DROP TABLE main.{stage}"


@dataclass(frozen=True)
class KeptAsText:
    """A column that stayed text, why, and where the first value lies that did not fit."""

    table: str
    column: str
    type: str
    rows: int
    file: str | None


@dataclass(frozen=True)
class Rows:
    """Archives loaded into a database: its connection, the tables in it, and what must be said.

    ``numbers`` are columns of numbers that stayed text, which no query can compute with as they are.
    """

    connection: Connection
    catalog: str
    tables: tuple[tuple[str, str], ...]
    kept: tuple[KeptAsText, ...]
    numbers: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Answer:
    """Columns with DuckDB's types, and the rows as text; they stream."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: Iterator[tuple[str | None, ...]]


@contextmanager
def loaded(chains: Sequence[Links], query: str | None, progress: Progress) -> Iterator[Rows]:
    """Load what a query reads, or everything, into a database that is gone afterwards.

    Raises ``Refused`` (QUERY_EXTRA_MISSING, QUERY_REFUSED, QUERY_FAILED, TEMPORARY_UNUSABLE) and what
    ``batches`` raises.
    """
    duckdb = _duckdb()
    with temporary():
        made = tempfile.TemporaryDirectory(prefix="tallystick-")
    with made as name:
        folder = Path(name)
        private = dict.fromkeys(("temp_directory", "extension_directory", "secret_directory"), name)
        with refusing():
            names = names_for(chains)
            connection = duckdb.connect(folder / f"{names.catalog}.duckdb", config=CONFIG | private)
        try:
            with refusing():
                connection.execute("SET TimeZone = 'UTC'")
                chosen = _chosen(connection, chains, query)
                _check_names(chosen)
                kept: list[KeptAsText] = []
                for selected in chosen:
                    with temporary():
                        kept += _load(connection, names, folder, selected, progress)
                if chosen:
                    schema = chosen[0].parts[0].table.schema
                    path = f"{names.catalog}.{quote(schema)}"
                    connection.execute(f"SET schema = {_literal(path)}")
                tables = [(each.parts[0].table.schema, each.parts[0].table.name) for each in chosen]
                numbers = numbers_in_text(chosen, kept)
                yield Rows(connection, names.catalog, tuple(tables), tuple(kept), tuple(numbers))
        finally:
            connection.close()


def answer(rows: Rows, query: str) -> Answer:
    """Run a query that may read what was loaded and nothing else.

    Raises ``Refused`` (QUERY_FAILED), while the rows stream, too.
    """
    connection = rows.connection
    with numbers_named(rows.numbers, query), refusing():
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        relation = connection.sql(_bare(query))
        types = tuple(str(each) for each in relation.types)
        columns = tuple(relation.columns)
        connection.execute(relation.project("CAST(COLUMNS(*) AS VARCHAR)").sql_query())
    return Answer(columns, types, _fetched(connection))


def is_number(type_name: str) -> bool:
    """Tell whether values of a DuckDB type are numbers."""
    return type_name in NUMBERS or type_name.startswith("DECIMAL(")


def json_row(answer: Answer) -> Callable[[Sequence[str | None]], bytes]:
    """Return the function that spells a row as one JSON object, with every digit of its numbers."""
    names = [json.dumps(name, ensure_ascii=False) for name in answer.columns]
    kinds = ["numeric" if is_number(each) else KINDS.get(each, "text") for each in answer.types]
    writers = [json_value(kind) for kind in kinds]

    def write(row: Sequence[str | None]) -> bytes:
        members = (
            f"{name}:{'null' if value is None else writer(value)}"
            for name, writer, value in zip(names, writers, row, strict=True)
        )
        return ("{" + ",".join(members) + "}").encode()

    return write


def parquet(rows: Rows, table: tuple[str, str], file: Path) -> None:
    """Write one loaded table to a file of Parquet."""
    name = f"{rows.catalog}.{quote(table[0])}.{quote(table[1])}"
    with refusing():
        rows.connection.execute(
            f"COPY {name} TO {_literal(str(file))} (FORMAT parquet, COMPRESSION zstd)"
        )


def parquet_name(table: tuple[str, str]) -> str:
    """Return the name of a table's file: ``schema.table.parquet``, with what no file name holds escaped."""
    schema, name = (re.sub(r"[%/]", lambda match: f"%{ord(match[0]):02X}", part) for part in table)
    return f"{schema}.{name}.parquet"


@contextmanager
def refusing() -> Iterator[None]:
    """Turn what DuckDB says into ``Refused`` (QUERY_FAILED)."""
    try:
        yield
    except _duckdb().Error as error:
        text = " ".join(str(error).split())[:DETAIL_MAX]
        raise Refused(Code.QUERY_FAILED, detail=text) from error


def _duckdb() -> Any:  # noqa: ANN401 - an optional module
    try:
        import duckdb  # noqa: PLC0415 - the extra `query` may not be installed
    except ImportError as error:
        raise Refused(Code.QUERY_EXTRA_MISSING) from error
    return duckdb


def _fetched(connection: Connection) -> Iterator[tuple[str | None, ...]]:
    while True:
        with refusing():
            rows = connection.fetchmany(FETCHED)
        if not rows:
            return
        yield from rows


def _bare(query: str) -> str:
    """Return a statement without the semicolons and comments at its end: it is put into another."""
    duckdb = _duckdb()
    text = query.encode()
    for place, kind in reversed(duckdb.tokenize(query)):
        if kind != duckdb.token_type.comment and text[place : place + 1] != b";":
            break
        text = text[:place]
    return text.decode()


def _chosen(connection: Connection, chains: Sequence[Links], query: str | None) -> list[Selection]:
    """Return the tables whose names are somewhere in a query; all of them when there are none.

    One too many costs time. One too few is no wrong answer: a table that was not loaded is not there.
    """
    every = {
        (table.schema, table.name): table.label
        for links in chains
        for table in links.manifest.tables
        if table.copied
    }
    wanted = every
    if query is not None:
        statements = connection.extract_statements(query)
        if len(statements) != 1 or statements[0].type.name != "SELECT":
            raise Refused(Code.QUERY_REFUSED)
        text = query.lower()
        mentioned = [key for key in every if key[1].replace('"', '""').lower() in text]
        wanted = {key: every[key] for key in mentioned} or every
    return [selection(chains, label, None) for label in wanted.values()]


def _check_names(chosen: Sequence[Selection]) -> None:
    """Refuse names that differ in case alone: to DuckDB they are the same."""
    labels = [each.parts[0].table.label for each in chosen]
    for names in (labels, *(each.columns for each in chosen)):
        seen: dict[str, str] = {}
        for name in names:
            other = seen.setdefault(name.lower(), name)
            if other != name:
                raise Refused(Code.QUERY_REFUSED, cause="case", name=name, other=other)


def _load(
    connection: Connection, names: Names, folder: Path, selected: Selection, progress: Progress
) -> list[KeptAsText]:
    columns = ", ".join(f"{quote(name)} VARCHAR" for name in selected.columns)
    connection.execute(STAGE.format(columns=columns, stage=names.stage, batch=names.batch))
    files: list[str] = []
    total = sum(len(part.links.digests) for part in selected.parts)
    with (folder / "rows.csv").open("w+b") as file:
        stage = _Stage(connection, names, file, selected.columns)
        for part in selected.parts:
            for batch in batches(part.links):
                _stage_batch(stage, batch, part, len(files))
                files.append(str(batch.path / batch.file))
                progress(len(files), total)
        stage.hand_over()
    (held,) = connection.execute(COUNT.format(stage=names.stage)).fetchone() or (None,)
    if held != stage.rows:
        raise Refused(Code.QUERY_FAILED, detail=f"{held} rows were loaded instead of {stage.rows}")
    return _typed(connection, names, selected, files)


class _Stage:
    """A file of CSV on its way into DuckDB, handed over whenever it is full."""

    def __init__(
        self, connection: Connection, names: Names, file: IO[bytes], columns: Sequence[str]
    ) -> None:
        self._connection = connection
        self._names = names
        self._file = file
        types = ", ".join(f"{_literal(name)}: 'VARCHAR'" for name in columns)
        self._columns = f"{{{types}, '{names.batch}': 'INTEGER'}}"
        self._size = 0
        self._longest = 0
        self.rows = 0

    def add(self, line: bytes) -> None:
        self._file.write(line)
        self._size += len(line)
        self._longest = max(self._longest, len(line))
        self.rows += 1
        if self._size >= STAGE_BYTES:
            self.hand_over()

    def hand_over(self) -> None:
        if not self._size:
            return
        self._file.flush()
        text = READ.format(
            stage=self._names.stage,
            file=_literal(self._file.name),
            columns=self._columns,
            longest=self._longest + 1,
            buffer=max(READ_BUFFER_BYTES, 2 * self._longest + 1),
        )
        self._connection.execute(text)
        self._file.seek(0)
        self._file.truncate()
        self._size = self._longest = 0


def _stage_batch(stage: _Stage, batch: Held, part: Part, number: int) -> None:
    places = [pick.place for pick in part.picks]
    whole = places == list(range(len(part.table.copied)))
    ending = f",{number}\n".encode()
    older = part.links.older(batch.after.seq)
    with named(batch.path, batch.file):
        for line in lines(pieces_of(batch.manifest, batch.blocks(), part.table, older)):
            if whole and b"\\" not in line and b'"' not in line:
                stage.add(b'"' + checked(line).replace(b"\t", b'","') + b'"' + ending)
            else:
                fields = line.split(b"\t")
                quoted = (b"\\N" if at is None else _quoted(fields[at]) for at in places)
                stage.add(b",".join(quoted) + ending)


def _quoted(field: bytes) -> bytes:
    try:
        value = unescape(field)
    except ValueError as error:
        raise Broken(Reason.ROW_ESCAPE) from error
    return b"\\N" if value is None else b'"' + value.replace('"', '""').encode() + b'"'


def _typed(
    connection: Connection, names: Names, selected: Selection, files: Sequence[str]
) -> list[KeptAsText]:
    """Make the table out of the staged text, each column in the type that holds all of its values."""
    table = selected.parts[0].table
    kept: list[KeptAsText] = []
    values = []
    for place, name in enumerate(selected.columns):
        picks = [part.picks[place] for part in selected.parts]
        types = sorted({pick.type for pick in picks if pick.place is not None})
        column = quote(name)
        wanted = exact(types[0]) if len(types) == 1 else None
        if len(types) > 1:
            kept.append(KeptAsText(table.label, name, ", ".join(types), 0, None))
        elif wanted is not None:
            ours = {"stage": names.stage, "batch": names.batch}
            misfits = MISFITS.format(column=column, fits=wanted.fits(column), **ours)
            wrong, first = connection.execute(misfits).fetchone() or (0, None)
            if wrong:
                kept.append(KeptAsText(table.label, name, types[0], wrong, files[first]))
                wanted = None
        value = wanted.made.format(text=column) if wanted else column
        values.append(f"CAST({value} AS {wanted.name if wanted else TEXT}) AS {column}")
    # By the catalog, too: DuckDB has others of its own, called temp and system.
    schema = f"{names.catalog}.{quote(table.schema)}"
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    target = f"{schema}.{quote(table.name)}"
    connection.execute(MAKE.format(table=target, values=", ".join(values), stage=names.stage))
    connection.execute(UNSTAGE.format(stage=names.stage))
    return kept


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
