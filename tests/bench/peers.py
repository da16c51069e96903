"""What ticks are measured beside: pipes of stock tools, pg_dump, and dlt in an environment of its own."""

from __future__ import annotations

from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from tests.bench import environment, running
from tests.bench.cost import Cost
from tests.bench.ground import Ground
from tests.bench.running import quoted, shell

HERE = Path(__file__).parent
# dlt's default, which goes through Python objects, and the fastest it has for Postgres.
BACKENDS = ("sqlalchemy", "pyarrow")
ALL = r"\copy (SELECT * FROM flight ORDER BY time_hour, id) TO STDOUT"

# A script as one would write it: one pipe a batch, and the last row of it asked for.
PIPE_A_BATCH = r"""
cd {directory}
last="'-infinity', 0"
batch=0
while [ -n "$last" ]; do
  batch=$((batch + 1))
  page="SELECT * FROM flight WHERE (time_hour, id) > ($last) ORDER BY time_hour, id LIMIT {size}"
  psql -qX {dsn} -c "\copy ($page) TO STDOUT" | zstd -q -3 -o $batch.zst
  sha256sum $batch.zst >> sums
  sync $batch.zst
  last=$(psql -qXAt {dsn} -c "SELECT quote_literal(time_hour) || ', ' || id FROM ($page) AS page
                              ORDER BY time_hour DESC, id DESC LIMIT 1")
done
"""

# The least that such a script can do: one psql a batch, which asks the index where the next one begins.
LEAN_PIPE_A_BATCH = r"""
cd {directory}
last="'-infinity', 0"
batch=0
while [ -n "$last" ]; do
  batch=$((batch + 1))
  rest="FROM flight WHERE (time_hour, id) > ($last) ORDER BY time_hour, id"
  last=$(psql -qXAt {dsn} -v ON_ERROR_STOP=1 \
    -c "\copy (SELECT * $rest LIMIT {size}) TO PROGRAM 'zstd -q -3 -o $batch.zst'" \
    -c "SELECT quote_literal(time_hour) || ', ' || id $rest OFFSET {size} - 1 LIMIT 1")
  sha256sum $batch.zst >> sums
  sync $batch.zst
done
"""


def raw_bytes(here: Ground) -> int:
    """Return the size of the table as COPY prints it."""
    return int(shell(f"{quoted('psql', '-qX', here.dsn, '-c', ALL)} | wc -c").output)


def pipe_a_batch(script: str, here: Ground, rows: int, size: int) -> Cost:
    """Write a file a batch with psql and zstd, each in key order, hashed and synced."""
    directory = here.home / "peer"
    names = {"directory": quoted(directory), "dsn": quoted(here.dsn), "size": str(size)}
    ran = shell(script.format(**names))
    # The plain script learns from an empty page that it is done.
    assert len(list(directory.glob("*.zst"))) - rows // size in {1, 2}
    return ran.cost


def one_pipe(here: Ground) -> Cost:
    """Write the table to one file with psql and zstd, in key order, hashed and synced."""
    return _to_file(here, quoted("psql", "-qX", here.dsn, "-c", ALL))


def dump(here: Ground) -> Cost:
    """Write the table to one file with pg_dump and zstd, in the order it lies in, hashed and synced."""
    return _to_file(here, quoted("pg_dump", "-Fc", "-Z0", "-t", "flight", "-d", here.dsn))


def loader() -> Path:
    """Return the Python of an environment that has dlt."""
    return environment.made(HERE / "dlt.txt")


def load(python: Path, here: Ground, backend: str) -> Cost:
    """Load the table with dlt into files of a directory: jsonl by default, parquet from pyarrow."""
    pairs = [f"{name}={value}" for name, value in conninfo_to_dict(here.dsn).items()]
    directory = here.home / "peer"
    quiet = {"RUNTIME__DLTHUB_TELEMETRY": "false", "HOME": str(directory)}
    program = HERE / "dlt_load.py"
    return running.run(python, program, backend, directory, "flight", *pairs, env=quiet).cost


def _to_file(here: Ground, source: str) -> Cost:
    file = quoted(here.home / "peer" / "all.zst")
    return shell(f"{source} | zstd -q -3 -o {file}; sha256sum {file}; sync {file}").cost
