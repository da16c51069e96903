"""The job that every system is given, and the commands by which every system is driven.

Also run by the environment that ``peers.txt`` describes, so it imports nothing of ours.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import psycopg

PAUSE_SECONDS = 4.0
# How soon a system takes a worker for dead, where it has a setting for that; their defaults are longer.
DEAD_AFTER_SECONDS = 3.0

TABLES = (
    "CREATE TABLE started (job text, worker text, at timestamptz DEFAULT clock_timestamp())",
    "CREATE TABLE effect (job text, worker text, at timestamptz DEFAULT clock_timestamp())",
)


@dataclass(frozen=True)
class System:
    """How a system is driven: each function gets the database's URL first.

    ``submit`` returns the job's id; ``work`` gets the worker's name and that of its place, which whoever
    is started in its stead takes over; ``stop`` and ``again`` are what an operator does to a job.
    """

    install: Callable[[str], None]
    submit: Callable[[str], str]
    work: Callable[[str, str, str], None]
    stop: Callable[[str, str], None]
    again: Callable[[str, str], None]


def pause(url: str, job: str, worker: str) -> None:
    """Say that the job was begun, and take a while: this is where workers are frozen and killed."""
    _insert(url, "INSERT INTO started (job, worker) VALUES (%s, %s)", job, worker)
    time.sleep(PAUSE_SECONDS)


def effect(url: str, job: str, worker: str) -> None:
    """Have the effect, which is counted."""
    _insert(url, "INSERT INTO effect (job, worker) VALUES (%s, %s)", job, worker)


def obey(system: System) -> None:
    """Do what the command line says: ``COMMAND URL [ARGUMENT…]``."""
    command, *arguments = sys.argv[1:]
    told = getattr(system, command)(*arguments)
    if told is not None:
        sys.stdout.write(f"{told}\n")


def _insert(url: str, statement: str, *values: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(statement.encode(), values)
