"""Trouble with settings and kinds: what is written down does not fit, or does not fit the tables."""

from __future__ import annotations

from collections.abc import Iterator

from shared.errors import Code
from tests.golden.scenario import KINDS
from tests.remedies.scene import Scene, Variables, remedy


@remedy(Code.SETTINGS_INVALID, 1)
def a_setting_is_misspelt(scene: Scene) -> Iterator[Variables]:
    scene.setenv(DATABSE_URL=scene.database)
    assert scene.ask("settings", code=2)["params"]["problems"][0]["problem"] == "unknown"
    yield {"MISSPELT": "TALLYSTICK_DATABSE_URL"}
    scene.ask("settings", code=0)


@remedy(Code.SETTINGS_INVALID, 2)
def the_root_is_set_without_its_id(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    scene.setenv(ARCHIVE_STORAGE_ID=None)
    scene.ask("tick", code=2)
    yield {"ROOT": str(scene.root)}
    assert scene.ask("volume", "show", code=0)["usable"] is True


@remedy(Code.SETTINGS_INVALID, 3)
def the_lease_is_shorter_than_the_timeout(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    scene.setenv(LEASE_SECONDS=50)
    scene.ask("tick", code=2)
    yield {}
    scene.ask("tick", code=0)


@remedy(Code.KINDS_INVALID, 1)
def a_member_is_misspelt(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    scene.kinds.write_text('[kinds.orders]\nroot = "app.orders"\ntiem = "placed_at"\n')
    scene.ask("tick", code=2)
    right = '[kinds.orders]\nroot = "app.orders"\ntime = "placed_at"\n'
    yield {"EDITOR": scene.editor(right)}
    scene.ask("tick", code=0)


@remedy(Code.KINDS_INVALID, 2)
def the_file_is_somewhere_else(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    right = scene.directory / "right.toml"
    right.write_text(KINDS.partition("[kinds.nothing]")[0])
    scene.setenv(KINDS_FILE=scene.directory / "absent.toml")
    scene.ask("tick", code=2)
    yield {"FILE": str(right)}
    scene.ask("tick", code=0)


@remedy(Code.KIND_UNKNOWN, 1)
def the_kind_is_misspelt(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    assert "orders" in scene.ask("kinds", "check", "oders", code=2)["params"]["known"]
    yield {"KIND": "orders"}


@remedy(Code.KIND_UNKNOWN, 2)
def the_kinds_file_is_not_read(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    scene.setenv(KINDS_FILE=None)
    scene.ask("plan", "set", "orders", "--reason", "a test needs it", code=2)
    yield {"KIND": "orders", "FILE": str(scene.kinds)}
    scene.do("plan", "set", "orders")


@remedy(Code.KIND_TABLE_MISSING, 1)
def its_table_comes_later(scene: Scene) -> Iterator[Variables]:
    scene.ask("policy", "set", "flows", "--after", "365d", "--reason", "a test needs it", code=2)
    yield {"KIND": "events"}
    assert scene.ask("policy", "list", code=0)["items"][0]["kind"] == "events"


@remedy(Code.KIND_REFUSED, 1)
def the_root_has_no_key(scene: Scene) -> Iterator[Variables]:
    scene.deploy()
    scene.sql("ALTER TABLE app.orders DROP CONSTRAINT orders_pkey CASCADE")
    scene.kinds.write_text('[kinds.orders]\nroot = "app.orders"\ntime = "placed_at"\n')
    scene.ask("preview", "orders", code=2)
    table = {"TABLE": "app.orders", "KEY": "id"}
    yield {"KIND": "orders", "SOURCE": scene.database, **table}
    assert scene.ask("preview", "orders", code=0)["roots"] == 45


@remedy(Code.TABLE_UNKNOWN, 1)
def the_table_is_in_another_schema(scene: Scene) -> Iterator[Variables]:
    scene.sql("CREATE SCHEMA app; CREATE TABLE app.bill (id integer PRIMARY KEY, at date)")
    assert scene.ask("kinds", "draft", "public.bill", code=2)["params"]["found"] == ["app.bill"]
    yield {"SOURCE": scene.database, "SCHEMA": "app", "TABLE": "bill"}
    scene.ask("kinds", "draft", "app.bill", code=0)


@remedy(Code.TABLE_UNKNOWN, 2)
def the_source_is_another_database(scene: Scene) -> Iterator[Variables]:
    scene.sql("CREATE TABLE public.bill (id integer PRIMARY KEY, at date)")
    with scene.another_database() as empty:
        scene.setenv(SOURCE_URL=empty)
        scene.ask("kinds", "draft", "public.bill", code=2)
        yield {"SOURCE": scene.database, "SCHEMA": "public", "TABLE": "bill"}
        scene.ask("kinds", "draft", "public.bill", code=0)


@remedy(Code.DRAFT_REFUSED, 1)
def the_table_has_no_key(scene: Scene) -> Iterator[Variables]:
    scene.sql("CREATE TABLE public.bill (id integer, at date)")
    scene.ask("kinds", "draft", "public.bill", code=2)
    yield {"SOURCE": scene.database, "TABLE": "public.bill", "KEY": "id"}
    scene.ask("kinds", "draft", "public.bill", code=0)


@remedy(Code.TIME_AMBIGUOUS, 1)
def the_table_has_two_times(scene: Scene) -> Iterator[Variables]:
    scene.sql("CREATE TABLE public.bill (id integer PRIMARY KEY, sent date, paid date)")
    told = scene.ask("preview", "public.bill", code=2)
    assert [each["column"] for each in told["params"]["problems"]] == ["sent", "paid"]
    yield {"TABLE": "public.bill", "COLUMN": "paid"}
    scene.ask("preview", "public.bill", "--time", "paid", code=0)


@remedy(Code.TIME_MISSING, 1)
def the_rows_belong_to_others_that_have_a_time(scene: Scene) -> Iterator[Variables]:
    scene.sql("CREATE TABLE public.bill (id integer PRIMARY KEY, at date)")
    scene.sql("CREATE TABLE public.entry (id integer PRIMARY KEY, bill integer REFERENCES bill)")
    scene.ask("kinds", "draft", "public.entry", code=2)
    yield {"PARENT": "public.bill"}
    drafted = scene.ask("kinds", "draft", "public.bill", code=0)
    assert drafted["definition"]["related"][0]["table"] == "public.entry"


@remedy(Code.TIME_MISSING, 2)
def a_time_is_added(scene: Scene) -> Iterator[Variables]:
    scene.sql("CREATE TABLE public.bill (id integer PRIMARY KEY, said text)")
    scene.ask("kinds", "draft", "public.bill", code=2)
    yield {"SOURCE": scene.database, "TABLE": "public.bill"}
    assert scene.ask("kinds", "draft", "public.bill")["definition"]["time"] == "added_at"


@remedy(Code.TIME_UNIT_UNKNOWN, 1)
def the_table_is_still_empty(scene: Scene) -> Iterator[Variables]:
    scene.sql("CREATE TABLE public.bill (id integer PRIMARY KEY, at bigint NOT NULL)")
    scene.ask("preview", "public.bill", "--time", "at", code=2)
    yield {"TABLE": "public.bill", "COLUMN": "at", "UNIT": "ms"}
    scene.ask("preview", "public.bill", "--time", "at", "--time-unit", "ms", code=0)


@remedy(Code.SOURCE_MISSING, 1)
def no_database_is_named(scene: Scene) -> Iterator[Variables]:
    scene.sql("CREATE TABLE public.bill (id integer PRIMARY KEY, at date)")
    scene.setenv(DATABASE_URL=None)
    scene.ask("kinds", "draft", "public.bill", code=2)
    yield {"SOURCE": scene.database, "TABLE": "public.bill"}
    scene.ask("preview", "public.bill", code=0)
