"""What the tests of drafts and checks start from: a draft as people see it, held against its database."""

from __future__ import annotations

from contextlib import closing

import psycopg

from shared.archive import draft as drafting
from shared.archive import kinds as kinds_file
from shared.archive.draft import Draft, Wishes
from shared.archive.examine import Finding
from shared.archive.kinds import NamedKind
from shared.archive.source import SourceConnection
from shared.archive.survey import survey
from shared.archive.written import kind_text
from shared.messages import words


def execute(dsn: str, *statements: str) -> None:
    """Run statements, each in a transaction of its own."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def draft_of(dsn: str, table: str, **wishes: str) -> Draft:
    with closing(SourceConnection(dsn)) as source:
        return drafting.draft(source.open(), table, Wishes(**wishes))  # type: ignore[arg-type]


def text_of(draft: Draft) -> str:
    return kind_text(draft, lambda code, params: words(code, params).happened)


def findings_of(dsn: str, kind: NamedKind) -> tuple[Finding, ...]:
    with closing(SourceConnection(dsn)) as source:
        return survey(source, kind).findings


def accepted(dsn: str, text: str) -> NamedKind:
    """Load the text as a kinds file, check that its one kind can be archived, and return the kind."""
    (kind,) = kinds_file.parse(text, "kinds.toml", "application")
    assert [found for found in findings_of(dsn, kind) if found.refuses] == []
    return kind


def drafted(dsn: str, table: str, **wishes: str) -> tuple[NamedKind, str]:
    """Draft a kind, print it, and return what loading the print gives, with the print."""
    draft = draft_of(dsn, table, **wishes)
    text = text_of(draft)
    kind = accepted(dsn, text)
    assert kind.kind == draft.kind
    return kind, text


def related_of(kind: NamedKind) -> list[str]:
    return [each.table for each in kind.kind.related]
