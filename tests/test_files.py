"""The one opener and the one writer: what they refuse, what they keep, what they leave."""

import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from profkit import files
from profkit.errors import ProfkitError

NOT_ROOT = pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")


def special(kind: str, folder: Path) -> Path:
    """Something that is no regular file."""
    path = folder / kind
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    return path


SPECIAL = {"pipe": "a named pipe", "socket": "", "folder": "a folder", "zero": "a device"}


@pytest.mark.parametrize("kind", SPECIAL)
def test_only_regular_files_are_read(kind: str, tmp_path: Path) -> None:
    path = special(kind, tmp_path)
    for read in (files.open_regular_file, files.read_bytes, files.read_json):
        with pytest.raises(OSError, match=SPECIAL[kind] or "."):
            read(path)


def test_sizes_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"12345")
    assert files.read_bytes(path, 5) == b"12345"
    with pytest.raises(OSError, match="larger than"):
        files.read_bytes(path, 4)
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a hole of a terabyte
    with pytest.raises(OSError, match="larger than 17 MB"):
        files.read_text(path)


def test_json_nested_without_end_is_a_value_error(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("[" * 200_000)
    with pytest.raises(ValueError, match=r"nested|Expecting"):
        files.read_json(path)


@pytest.mark.parametrize("value", ["[]", "{}", '"ab"', "1", '{"a":0}'])
def test_json_of_many_small_values_is_refused_before_it_is_parsed(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """15 MB of `[],` next to a report took 540 MB."""
    path = tmp_path / "x.json"
    path.write_text(f"[{f'{value},' * 10_000}{value}]")
    assert len(files.read_json(path)) == 10_001
    monkeypatch.setattr(files.ReadBudget, "DOCUMENT", 0)
    with pytest.raises(ValueError, match="asks for more memory than its bytes can need"):
        files.read_json(path)
    path.write_text(json.dumps({"samples": [1.2345678e-05] * 1000, "kernel": "k" * 10_000}))
    assert files.read_json(path)["samples"][999] == 1.2345678e-05


def test_a_file_is_replaced_whole_and_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("old")
    path.chmod(0o640)
    files.write_text(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["x.csv"]


def test_a_new_file_has_the_permissions_of_the_umask(tmp_path: Path) -> None:
    command = "import os, sys; os.umask(0o027); "
    command += "from profkit import files; files.write_text(sys.argv[1], 'x')"
    subprocess.run([sys.executable, "-c", command, str(tmp_path / "x")], check=True)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for link, target in (("a", "there/old"), ("b", "there/new")):
        (tmp_path / link).symlink_to(tmp_path / target)
    (tmp_path / "there/old").write_text("old")
    files.write_text(tmp_path / "a", "1")
    files.write_text(tmp_path / "b", "2")
    assert (tmp_path / "a").is_symlink()
    assert ((tmp_path / "there/old").read_text(), (tmp_path / "there/new").read_text()) == (
        "1",
        "2",
    )


def test_a_pipe_is_written_through(tmp_path: Path) -> None:
    path = special("pipe", tmp_path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        files.write_text(path, "through")
        assert [os.read(reader, 100), os.read(reader, 100)] == [b"through", b""]
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_a_pipe_that_nobody_reads_is_no_wait(tmp_path: Path) -> None:
    with pytest.raises(ProfkitError, match="cannot be written"):
        files.write_text(special("pipe", tmp_path), "x")


def test_devices_stay_devices(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("/dev/full")
    for path in (Path("/dev/full"), link):
        with pytest.raises(ProfkitError, match="No space left on device"):
            files.write_text(path, "x" * 100)
    files.write_text("/dev/null", "x")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert not list(Path("/dev").glob(".null*"))


def test_dev_stdout_is_written_into_what_stdout_is(tmp_path: Path) -> None:
    command = "from profkit import files; files.write_text('/dev/stdout', 'through')"
    with (tmp_path / "out").open("wb") as out:
        subprocess.run([sys.executable, "-c", command], check=True, stdout=out)
    assert (tmp_path / "out").read_text() == "through"
    piped = subprocess.run([sys.executable, "-c", command], check=True, stdout=subprocess.PIPE)
    assert piped.stdout == b"through"


@pytest.mark.parametrize("kind", ["folder", "socket"])
def test_what_cannot_be_written_is_refused_before_the_work(kind: str, tmp_path: Path) -> None:
    path = special(kind, tmp_path)
    with pytest.raises(ProfkitError):
        files.verify_output_can_be_written(path)
    with pytest.raises(ProfkitError):
        files.write_text(path, "x")
    assert path.exists()


def test_an_output_that_is_an_input_is_refused(tmp_path: Path) -> None:
    report = tmp_path / "r.ncu-rep"
    report.write_bytes(b"precious")
    (tmp_path / "link").symlink_to(report)
    for name in (report, tmp_path / "link", tmp_path / "." / "r.ncu-rep"):
        with pytest.raises(ProfkitError, match="one of the files to read"):
            files.verify_output_can_be_written(name, [str(report)])


def test_a_folder_that_is_not_there_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(ProfkitError, match="its folder does not exist") as caught:
        files.verify_output_can_be_written(tmp_path / "no/x.png")
    assert caught.value.hint == f"mkdir -p {tmp_path / 'no'}"


@NOT_ROOT
def test_what_is_read_only_stays(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    path.chmod(0o444)
    for write in (files.verify_output_can_be_written, lambda p: files.write_text(p, "new")):
        with pytest.raises(ProfkitError, match="may not be written"):
            write(path)
    assert path.read_text() == "old"


def test_a_block_that_fails_leaves_nothing_and_its_own_error(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    path.write_text("old")

    def half() -> None:
        with files.write_then_replace(path) as part:
            part.write_text("half")
            raise OSError(28, "No space left on device")

    with pytest.raises(ProfkitError, match="No space left on device"):
        half()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["x.png"]


def test_long_names_and_any_characters(tmp_path: Path) -> None:
    for name in ("é" * 120 + ".json", "x" * 255, ".hidden", "a b\n'c"):
        files.write_text(tmp_path / name, "x")
        assert (tmp_path / name).read_text() == "x"
    files.write_text(tmp_path / "y", "\udcff")  # a byte that was no UTF-8
    assert (tmp_path / "y").read_bytes() == rb"\udcff"


WRITER = """
import sys, threading
from profkit import files
for i in range(60):
    files.write_text(sys.argv[1], sys.argv[2] * 100_000)
"""


def test_of_writers_at_once_one_whole_one_wins(tmp_path: Path) -> None:
    path = tmp_path / "x"
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [subprocess.Popen([*command, letter]) for letter in "abc"]
    seen = set()
    while any(w.poll() is None for w in writers):
        if path.exists():
            content = path.read_text()
            seen.add((len(content), len(set(content))))
    assert [w.returncode for w in writers] == [0, 0, 0]
    assert seen == {(100_000, 1)}
    assert os.listdir(tmp_path) == ["x"]


KILLED = """
import os, signal, sys, tempfile
from pathlib import Path
from profkit import files
tempfile.tempdir = sys.argv[1]
with files.make_temporary_folder() as a, files.make_temporary_folder(sys.argv[1]) as b:
    (a / "x").write_text("x")
    with files.write_then_replace(Path(sys.argv[1]) / "page.html"):
        if sys.argv[2] == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        print("up", flush=True)
        input()
"""


def test_what_a_killed_process_left_goes_at_the_next_start(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(files, "_YOUNG", 0.0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    assert subprocess.run([*command, "die"], check=False).returncode == -9
    left = set(os.listdir(tmp_path))
    assert len(left) == 3
    alive = subprocess.Popen([*command, "live"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert alive.stdout
    alive.stdout.readline()
    with files.make_temporary_folder(), files.make_temporary_folder(tmp_path):
        files.write_text(tmp_path / "page.html", "whole")
        now = set(os.listdir(tmp_path))
        assert not left & now, "of the dead nothing stays"
        assert len(now - {"page.html"}) == 5, "of the living everything does"
    alive.communicate(b"\n", timeout=300)
    assert os.listdir(tmp_path) == ["page.html"]


def test_a_part_has_no_reader_s_ending(tmp_path: Path) -> None:
    """No glob for an ending finds what is not whole yet, whatever file it is to become."""
    for name in ("x.parquet", "x.json", "stage2.B.ncu-rep", "x.tar.gz", ".hidden.json", "x" * 255):
        with files.write_then_replace(tmp_path / name) as part:
            assert (part.name[0], part.suffix) == (".", ".part")


# What a user may have in a folder for temporary files under a name that looks like profkit's.
LOCKS: dict[str, Callable[[Path], object]] = {
    "no lock": lambda lock: None,
    "an empty one": lambda lock: lock.touch(),
    "a text": lambda lock: lock.write_text("profkit made this folder for a while"),
    "a package manager's": lambda lock: lock.write_text("version = 1\n"),
    "a folder": lambda lock: lock.mkdir(),
    "a pipe": os.mkfifo,
    "a link to nothing": lambda lock: lock.symlink_to("nothing"),
    "a link to a token": lambda lock: lock.symlink_to(lock.parents[1] / "token"),
    "a token of another folder": lambda lock: lock.write_bytes(
        files._make_ownership_token(lock.parents[1].stat())
    ),
    "a token and more": lambda lock: lock.write_bytes(
        files._make_ownership_token(lock.parent.stat()) + b"mine"
    ),
}
PREFIXES = ("profkit-", "profkit-mine", ".profkit-", ".profkit-0123456789abcdef", ".profkit-x.part")


@pytest.mark.parametrize("lock", LOCKS)
def test_what_others_made_stays_whatever_it_is_called(
    lock: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each lock under each name, and each name as a file and as a link: 10 x 5 + 10."""
    monkeypatch.setattr(files, "_YOUNG", 0.0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious").touch()
    for name in PREFIXES:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "precious").touch()
        (tmp_path / "token").write_bytes(files._make_ownership_token(folder.stat()))
        LOCKS[lock](folder / ".lock")
        (tmp_path / f"{name}-link").symlink_to("elsewhere")
        (tmp_path / f"{name}-file").write_text("precious")
    for part in (".ab12", ".x.B", ".x", ""):
        for ending in ("", ".parquet", ".json"):
            (tmp_path / f"{part}.{'0a' * 8}.part{ending}").write_text("precious")
    for path in tmp_path.rglob("*"):
        os.utime(path, (0, 0), follow_symlinks=False)
    before = {path for path in tmp_path.rglob("*") if path.name != "token"}
    with files.make_temporary_folder(), files.make_temporary_folder(tmp_path):
        files.write_text(tmp_path / "new.parquet", "whole")
    (tmp_path / "new.parquet").unlink()
    assert {path for path in tmp_path.rglob("*") if path.name != "token"} == before


def test_what_profkit_made_and_somebody_copied_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_YOUNG", 0.0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with files.make_temporary_folder() as folder:
        (folder / "result").touch()
        shutil.copytree(folder, tmp_path / "profkit-copy")
    with files.make_temporary_folder():
        assert (tmp_path / "profkit-copy" / "result").exists()


def test_a_copy_of_a_pipe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfkitError, match="a named pipe"):
        files.copy_file(special("pipe", tmp_path), tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_json_goes_and_comes(tmp_path: Path) -> None:
    write: Callable[[Path, str], None] = files.write_text
    write(tmp_path / "x.json", json.dumps({"a": [1, 2.5, None]}))
    assert files.read_json(tmp_path / "x.json") == {"a": [1, 2.5, None]}


def test_a_file_that_was_made_elsewhere_takes_its_place_as_any_other(tmp_path: Path) -> None:
    made, link = tmp_path / "made", tmp_path / "link"
    (tmp_path / "old").write_text("old")
    (tmp_path / "old").chmod(0o640)
    link.symlink_to(tmp_path / "old")
    made.write_text("new")
    files.move_file(made, link)
    assert link.is_symlink()
    assert ((tmp_path / "old").read_text(), made.exists()) == ("new", False)
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o640
    made.write_text("new")
    with pytest.raises(ProfkitError, match="No space left on device"):
        files.move_file(made, "/dev/full")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)
    files.move_file(made, "/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_folder_takes_the_place_of_another_whole(tmp_path: Path) -> None:
    for name in ("made", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text(name)
    files.move_folder(tmp_path / "made", tmp_path / "there")
    assert [p.name for p in tmp_path.iterdir()] == ["there"]
    assert [p.name for p in (tmp_path / "there").iterdir()] == ["made"]


def test_a_log_is_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("the last one, which was longer")
    with files.open_new_log(tmp_path / "x.log") as log:
        log.write(b"new")
    assert (tmp_path / "x.log").read_text() == "new"
    for kind in ("pipe", "socket", "zero"):
        with pytest.raises(OSError, match=r"not a file|No such device"):
            files.open_new_log(special(kind, tmp_path))


# What is written where nobody else looks: in a folder of this process, in memory, or into a part
# that files.write_then_replace moves to its place.
OWN = {
    "profkit/reports/contents.py",
    "profkit/lab/measure/cuda/library.py",
    "profkit/lab/measure/languages/",
    "profkit/lab/measure/capture.py",
    "profkit/collect/inject/",
    "profkit/lab/measure/aot.py",
    "profkit/evidence/commits.py",
    "profkit/program/readers/store.py",
    "profkit/cli/output.py",
    "profkit/show/plots/base.py",
    "profkit/cli/app.py",
    "profkit/cli/options.py",
    "profkit/cli/protocol.py",  # a pipe
    "profkit/reports/isolated.py",  # pipes
    "profkit/reports/serving.py",
}
WRITES = re.compile(
    r"\.(write_bytes|savefig|to_parquet|to_csv)\((?!index=False\)$)|\w\.write_text\(|os\.(replace|rename)\(|"
    r"shutil\.(copy|move)|open\([^)]*[\"'][wax]b?\+?[\"']"
)


def test_nothing_is_written_past_the_writer() -> None:
    root = Path(files.__file__).parents[1]
    past = [
        f"{path.relative_to(root)}:{number}"
        for path in sorted((root / "profkit").rglob("*.py"))
        if not str(path.relative_to(root)).startswith((*OWN, "profkit/files.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if WRITES.search(line)
    ]
    assert past == []
