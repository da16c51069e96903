"""One table by dlt, as its documentation loads one: run by the environment that ``dlt.txt`` describes.

``python dlt_load.py BACKEND DIRECTORY TABLE KEY=VALUE…``, the pairs being libpq's.
"""

import sys
from pathlib import Path

import dlt  # type: ignore[import-not-found]
import sqlalchemy  # type: ignore[import-not-found]
from dlt.sources.sql_database import sql_database  # type: ignore[import-not-found]

CHUNK_ROWS = 100_000


def main() -> None:
    """Load a table into files of a directory."""
    backend, directory, name, *pairs = sys.argv[1:]
    there = dict(pair.split("=", 1) for pair in pairs)
    address = sqlalchemy.URL.create(
        "postgresql+psycopg2",
        username=there["user"],
        database=there["dbname"],
        query={"host": there["host"], "port": there["port"]},
    )
    engine = sqlalchemy.create_engine(address)
    source = sql_database(engine, table_names=[name], backend=backend, chunk_size=CHUNK_ROWS)
    files = dlt.destinations.filesystem(bucket_url=Path(directory, "files").as_uri())
    pipeline = dlt.pipeline(
        "bench",
        pipelines_dir=str(Path(directory, "state")),
        destination=files,
        dataset_name="bench",
    )
    done = pipeline.run(source, loader_file_format="parquet" if backend == "pyarrow" else None)
    done.raise_on_failed_jobs()


if __name__ == "__main__":
    main()
