"""A real PostgreSQL for tests: a cluster in a temporary folder, and a fresh database for each test.

Invariant: nothing outlives the test run that started it. Fresh databases are copies of one that
the store has migrated, so they are made in milliseconds.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path
from urllib.parse import quote

import asyncpg

from perdure.store import Store

#: Where Debian and others put what is not on the PATH.
_PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")
_NAME = "postgres"
_PREFIX = "perdure-pg-"
_TEMPLATE = "perdure_template"
_SETTINGS = {
    # Connections go through the folder alone; what is here may be lost.
    "listen_addresses": "''",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_connections": "100",
    "shared_buffers": "32MB",
}


def missing() -> str:
    """Why there can be no PostgreSQL on this machine; empty when there can."""
    if _binaries() is None:
        return "PostgreSQL IS NOT TESTED: there is no initdb. Install it (Debian: postgresql)."
    if os.geteuid() == 0 and _user() is None:
        return f"PostgreSQL IS NOT TESTED: it does not run as root, and there is no user {_NAME}."
    return ""


class Cluster:
    """A running server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made = 0
        self._has_template = False
        self._runs = False

    def url(self, database: str, user: str = _NAME) -> str:
        """The URL of one of its databases."""
        return f"postgresql://{user}@/{database}?host={quote(str(self.folder))}"

    async def fresh(self, *, migrated: bool = True) -> str:
        """The URL of a database that nobody uses yet."""
        self._made += 1
        name = f"perdure_{self._made}"
        if migrated and not self._has_template:
            self._has_template = True
            await self.run(f"CREATE DATABASE {_TEMPLATE}")
            await (await Store.open(self.url(_TEMPLATE))).close()
        template = _TEMPLATE if migrated else "template1"
        await self.run(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    async def drop(self, url: str) -> None:
        """Remove a database, whoever is connected."""
        await self.run(f"DROP DATABASE {url.partition('?')[0].rpartition('/')[2]} WITH (FORCE)")

    async def run(self, statement: str) -> None:
        """A statement as the server's administrator."""
        connection = await asyncpg.connect(self.url("postgres"))
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    def restart(self) -> None:
        """Stop the server, whoever is connected, and start it again."""
        self.stop()
        self.start()

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        for left in reversed(range(10)):
            try:
                self._control("start", "-w", "-l", str(self.folder / "log"))
                break
            except RuntimeError:
                # What served the clients of the last one may not be gone yet.
                if not left:
                    raise
                time.sleep(0.5)
        self._runs = True

    def stop(self) -> None:
        """Stop it, if it runs; its clients are cut off."""
        if self._runs:
            self._runs = False
            self._control("stop", "-m", "fast")

    def make(self) -> None:
        """Make its files."""
        _call("initdb", "-D", self._data, "-A", "trust", "-U", _NAME, "-E", "UTF8", "-N")
        settings = {**_SETTINGS, "unix_socket_directories": f"'{self.folder}'"}
        with (self.folder / "data" / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in settings.items())

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def _control(self, *arguments: str) -> None:
        _call("pg_ctl", "-D", self._data, *arguments)


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """A server of its own, gone with its files when the block ends, however it ends."""
    _clear_away()
    # A socket's path is short, which pytest's folders are not.
    cluster = Cluster(Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")))
    user = _user()
    if user is not None:
        os.chown(cluster.folder, user.pw_uid, user.pw_gid)
    try:
        cluster.make()
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop()
    finally:
        shutil.rmtree(cluster.folder, ignore_errors=True)


def _clear_away() -> None:
    """End the servers of test runs that were killed themselves, and remove their files."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if not owner.isdecimal() or Path("/proc", owner).exists() or not Path("/proc").exists():
            continue
        noted = folder / "data" / "postmaster.pid"
        with suppress(OSError):
            server = noted.read_text().splitlines()[0]
            # The number may be another process's by now.
            if str(folder).encode() in Path("/proc", server, "cmdline").read_bytes():
                os.kill(int(server), signal.SIGQUIT)
        shutil.rmtree(folder, ignore_errors=True)


def _binaries() -> Path | None:
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(on_path).resolve().parent
    found = sorted(place for pattern in _PLACES for place in glob(f"{pattern}/initdb"))
    return Path(found[-1]).parent if found else None


def _user() -> pwd.struct_passwd | None:
    """Who runs the server, if not we ourselves."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(_NAME)
    except KeyError:
        return None


def _call(name: str, *arguments: str) -> None:
    user = _user()
    binaries = _binaries()
    assert binaries is not None
    ran = subprocess.run(
        [str(binaries / name), *arguments],
        user=None if user is None else user.pw_uid,
        group=None if user is None else user.pw_gid,
        extra_groups=None if user is None else [],
        cwd="/",
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
        # The server inherits what it is given here: a pipe would never end.
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    if ran.returncode != 0:
        raise RuntimeError(f"{name} failed with {ran.returncode}: {' '.join(arguments)}")
