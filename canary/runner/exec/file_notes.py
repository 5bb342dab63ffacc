"""Notes which files a launch of the user's command changes, and keeps their earlier state.

Runs in each Python process of the command, before anything else. Standard library only, and little
of it. Python's audit events show the writes; `canary.training.attach.writers` shows those of native
code. Writes of a shell or another program stay unnoticed (see `canary.runner.exec.left_files`).
"""
# ruff: noqa: PTH101, PTH105, PTH107, PTH109, PTH110, PTH112, PTH114, PTH115, PTH116, PTH117, PTH118, PTH120, PTH121, PTH123, PTH208
# pathlib costs an import in every process of the command

from __future__ import annotations

import atexit
import os
import stat
import sys
import time
from _thread import get_ident
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

VARIABLE = "_RLHF_CANARY_FILES"
"""The environment variable of a launch: `note:FOLDER`, or `protect:FOLDER` to allow only changes
that can be undone. The folder, two levels below the run's, gets the notes and the kept files."""
NOTE, PROTECT = "note", "protect"
MARKS = "_RLHF_CANARY_MARKS"
KEPT_BYTES = 256 << 20
"""Most bytes that one process copies: it does so in the middle of the user's training."""
LOOKED_AT = 10_000
"""Most entries of a folder that are examined."""
ENDED = 70
"""Exit code of a process that `end_here` ended."""
LEAVE = os._exit
"""As it was at the start: a recorded loop replaces it, to write its result first."""
BEGAN_AT, ENDED_AT = "began.", "ended."
"""Prefixes of the files whose times say when a process began and ended."""
MARKS_FOLDER = os.environ.get(MARKS, "")
"""Read at the start, because the program may clear its environment."""
ROOM = "free space on the disk"
CLOCK_S = 0.05
"""A file's time may lag this much behind the clock."""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_TRUNC | os.O_CREAT
NEW, KEPT, LINK, FOLDER, UNKEPT, OUTPUT, TEMPORARY, LISTED, CACHE, MADE_IN = "NKSDUOTFCM"
WRITTEN_TO, UNNOTICED = "WH"
"""Kinds of a note, by the state before the change: no file; a kept file; a symlink; a folder; a
file that could not be kept; an output of a shell or another program; made by `tempfile`; the names
in a folder; a cache; made in, or moved with, a folder that this process made. Then: opened again
for writing; changed unnoticed while this process ran."""
LINKED, COPIED = "linked.", "copied."
"""Prefixes of a kept file's name: a hard link to the file, or a copy. The name ends with the
numbers of device and inode."""
PATHS: dict[str, tuple[tuple[int, int], ...]] = {
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.rename": ((0, 2), (1, 3)),
    "os.symlink": ((1, 2),),
    "os.link": ((1, 3),),
}
"""Per audit event, the indexes of two arguments: a path, and the folder it is relative to."""
WRITTEN = ("os.truncate", "os.chmod", "os.chown", "os.utime", "sqlite3.connect")
MADE = ("tempfile.mkstemp", "tempfile.mkdtemp")
EVENTS = frozenset((*PATHS, *WRITTEN, *MADE, "open", "socket.bind"))
NAMES = (str, bytes, os.PathLike)
SQLITE = ("-journal", "-wal", "-shm")


class Kept:
    """The folder of this process's notes and copies, and the bytes written there: counts of the
    training's writes leave them out (see `canary.training.collectors.calls`)."""

    folder = ""
    bytes = 0


class Notes:
    """The notes of this process, in the folder of `VARIABLE`; the first note of a path counts.

    `root` is the pid of the first Python process in the chain of processes that led to this one.
    """

    def __init__(
        self, folder: str, root: int, is_free: Callable[[str], bool], *, protects: bool = False
    ) -> None:
        self._folder = folder
        self._root = root
        self._is_free = is_free
        self._protects = protects
        self._seen: set[str] = set()
        self._new: set[str] = set()
        self._listed: dict[str, set[str]] = {}
        self._busy: set[int] = set()
        self._kept: dict[tuple[int, int], str] = {}
        """Kept files by device and inode: a file may have several names."""
        self._given: set[str] = set()
        """Files of a shell: open for writing when this process began."""
        self._room = KEPT_BYTES
        self._looked = False
        """Whether the outputs of the command's other programs are noted."""

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        """Handle an audit event. Raises nothing. Python calls it hundreds of times per step."""
        if event not in EVENTS:
            return
        thread = get_ident()
        if thread in self._busy:
            return
        self._busy.add(thread)
        try:
            self._handle(event, args)
        except (OSError, TypeError, ValueError):
            return  # not a path, or the run that asked for notes is over
        finally:
            self._busy.discard(thread)

    def _handle(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = args
            if isinstance(flags, int) and flags & WRITES and isinstance(path, NAMES):
                self._written(os.fspath(path))
        elif event == "sqlite3.connect":
            name = os.fsdecode(args[0]).removeprefix("file:").partition("?")[0]
            for end in ("", *SQLITE):
                self._written(name + end)
        elif event in WRITTEN:
            path = located(args[0], -1 if event == "os.truncate" else args[-1])
            if not os.path.isdir(path):
                self._written(path)
        elif event == "socket.bind":
            if isinstance(args[1], (str, bytes)):
                self._note(located(args[1]), moves=True)
        elif event in MADE:
            path = located(args[0])
            self._seen.add(path)
            self._new.add(path)
            self._append(TEMPORARY, path)
        elif not (event == "os.mkdir" and os.path.isdir(located(args[0], args[2]))):
            paths = [located(args[index], args[folder]) for index, folder in PATHS[event]]
            for path in paths:
                self._note(path, moves=True)
            if event == "os.rename":
                self._note_moved(*paths)
                self._note_write(paths[1])

    def before_open(self, path: Any, flags: int, descriptor: int) -> None:
        """Note a file before it is opened by a path relative to an open folder."""
        if flags & WRITES and isinstance(path, NAMES):
            self.hook("open", (located(path, descriptor), None, flags))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Ignore this thread's events: its change is already noted."""
        thread = get_ident()
        was = thread in self._busy
        self._busy.add(thread)
        try:
            yield
        finally:
            if not was:
                self._busy.discard(thread)

    def before_training(self) -> None:
        """Note the outputs of other programs: by now a shell has started them all."""
        with self.paused():
            self._note_outputs()
        self._looked = False

    def _note_outputs(self) -> None:
        """Note files that other programs of the command, such as `tee`, have open for writing."""
        self._looked = True
        for path in written_by(MARKS_FOLDER):
            self._note_output(path)

    def before_write(self, path: Any) -> None:
        """Note a file before native code writes it; ignore anything but a path."""
        if isinstance(path, NAMES):
            for _ in range(2):  # it may open a file more than once
                self.hook("open", (os.fspath(path), None, os.O_WRONLY))

    def at_start(self) -> None:
        """Note the files that a shell opened for this process."""
        with self.paused(), suppress(OSError, ValueError):
            for path in open_files("/proc/self"):
                self._given.add(path)
                self._note_output(path)
            if os.getpid() == self._root:
                self._touch(BEGAN_AT)
                self._list(os.getcwd())

    def at_exit(self) -> None:
        """Note files that native code still has open: it may write to them after Python ended."""
        with self.paused(), suppress(OSError, ValueError):
            for path in open_files("/proc/self"):
                if path not in self._seen | self._given and not self._is_free(path):
                    self._append(UNKEPT, path, "native code still had open when Python ended")
            self._unnoticed()
            if os.getpid() == self._root:
                self._touch(ENDED_AT)

    def _unnoticed(self) -> None:
        """Note unnoticed changes in the folders that this process wrote to, before a later stage of
        the command renames or overwrites them."""
        began = os.stat(os.path.join(self._folder, f"{BEGAN_AT}{self._root}"))
        for folder, names in self._listed.items():
            for name in os.listdir(folder) if os.path.isdir(folder) else ():
                path = os.path.join(folder, name)
                try:
                    state = os.lstat(path)
                except OSError:
                    continue  # gone meanwhile
                known = path in self._seen or (name in names and stat.S_ISDIR(state.st_mode))
                if not known and not is_older(state, began):
                    self._append(UNNOTICED, path)

    def _touch(self, name: str) -> None:
        with open(os.path.join(self._folder, f"{name}{self._root}"), "w"):
            pass

    def _note_output(self, path: str) -> None:
        """Note a file that another program of the command writes to."""
        if path not in self._seen and not self._is_free(path):
            self._list(os.path.dirname(path))
            self._append(OUTPUT, path)

    def note_cache(self, path: str) -> None:
        """Note a folder that stays as it is for the next launch."""
        self._append(CACHE, os.path.realpath(path))

    def _written(self, path: str | bytes) -> None:
        # A write follows symlinks.
        target = os.path.realpath(located(path))
        if os.path.isdir(target):
            return  # `tempfile.TemporaryFile` opens a file without a name there
        if self._kept:
            self._copy_link(target)
        self._note(target, moves=False)
        self._note_write(target)

    def _note_write(self, path: str) -> None:
        """Note each write of a repeated launch: further writes are another program's."""
        if self._protects and not self._is_free(path):
            self._append(WRITTEN_TO, path)

    def _note(self, path: str, *, moves: bool) -> None:
        """Note the first change of a path. `moves`: only its name changes, not its content."""
        if path in self._seen or self._is_free(path):
            return
        self._seen.add(path)
        if not self._looked:
            self._note_outputs()
        if self._is_new(path) and not os.path.lexists(path):
            self._append(MADE_IN, path)
            return
        self._list(os.path.dirname(path))
        try:
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            self._new.add(path)
            self._append(NEW, path)
            return
        if stat.S_ISREG(found.st_mode):
            self._file(path, found, moves)
        elif stat.S_ISLNK(found.st_mode):
            self._append(LINK, path, os.readlink(path))
        elif stat.S_ISDIR(found.st_mode):
            self._append(FOLDER, path, oct(stat.S_IMODE(found.st_mode)))
            self._note_content(path)

    def _is_new(self, path: str) -> bool:
        """Whether a folder that this process made holds the path."""
        while path != "/":
            path = os.path.dirname(path)
            if path in self._new:
                return True
        return False

    def _note_content(self, folder: str) -> None:
        """Note everything in a folder that is renamed."""
        looked = 0
        for root, folders, files in os.walk(folder):
            looked += len(folders) + len(files)
            if looked > LOOKED_AT:
                self._not_kept(folder, f"holds more than {LOOKED_AT:,} files")
                return
            for name in (*folders, *files):
                self._note(os.path.join(root, name), moves=True)

    def _note_moved(self, source: str, target: str) -> None:
        """Note the content of a renamed folder, at its new place, as made by the command."""
        if os.path.islink(source) or self._is_free(target):
            return
        looked = 0
        for root, folders, files in os.walk(source):
            looked += len(folders) + len(files)
            if looked > LOOKED_AT:
                return
            for name in (*folders, *files):
                path = target + os.path.join(root, name)[len(source) :]
                if path not in self._seen:
                    self._seen.add(path)
                    self._append(MADE_IN, path)

    def _list(self, folder: str) -> None:
        if folder in self._listed:
            return
        self._listed[folder] = set()
        try:
            names = os.listdir(folder)
        except OSError:
            del self._listed[folder]
            return
        self._listed[folder] = set(names)
        if len(names) <= LOOKED_AT:
            self._append(LISTED, folder, "/".join(names))

    def _file(self, path: str, found: os.stat_result, moves: bool) -> None:
        file, name = (found.st_dev, found.st_ino), f"{os.getpid()}.{time.time_ns()}"
        name += f".{found.st_dev}.{found.st_ino}"
        if file in self._kept:
            self._append(KEPT, path, self._kept[file])
            return
        if moves and _linked(path, os.path.join(self._folder, LINKED + name)):
            self._kept[file] = f"{LINKED}{name}/{found.st_mtime_ns}"
            self._append(KEPT, path, self._kept[file])
            return
        if found.st_size > self._room:
            self._not_kept(path, f"is too large to keep a copy ({found.st_size:,} bytes)")
            return
        self._room -= found.st_size
        try:
            copy_file(path, os.path.join(self._folder, COPIED + name))
        except OSError as error:
            with suppress(OSError):
                os.remove(os.path.join(self._folder, COPIED + name))
            self._not_kept(path, f"cannot be copied: {error.strerror}")
            return
        self._kept[file] = f"{COPIED}{name}/{found.st_mtime_ns}"
        self._append(KEPT, path, self._kept[file])

    def _copy_link(self, path: str) -> None:
        """Replace a hard link by a copy, as the file itself is now written to."""
        try:
            found = os.stat(path)
        except OSError:
            return
        name = self._kept.get((found.st_dev, found.st_ino), "").rpartition("/")[0]
        kept = os.path.join(self._folder, name)
        if not name.startswith(LINKED) or not os.path.exists(kept) or found.st_size > self._room:
            return
        if os.path.samefile(kept, path):
            self._room -= found.st_size
            copy_file(kept, kept + ".copy")
            os.replace(kept + ".copy", kept)

    def _not_kept(self, path: str, why: str) -> None:
        if self._protects:
            end_here(
                f"change {path}, which {why}", "let it change only what the first launch changes"
            )
        self._append(UNKEPT, path, why)

    def _append(self, kind: str, path: str, more: str = "") -> None:
        """Append a note in one write, reopening the file: the user may close any descriptor."""
        words = (str(time.time_ns()), kind, path, more)
        notes = os.path.join(self._folder, f"notes.{self._root}.{os.getpid()}")
        try:
            descriptor = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                note = b"".join(os.fsencode(word) + b"\0" for word in words)
                Kept.bytes += os.write(descriptor, note)
            finally:
                os.close(descriptor)
        except OSError as error:
            self._seen.discard(path)
            if self._protects:
                end_here(f"change {path}, which cannot be noted ({error.strerror})", ROOM)
            raise


def is_older(state: os.stat_result, began: os.stat_result) -> bool:
    """Whether a file changed before the file `began`; times of one disk share a coarse clock."""
    same = state.st_dev == began.st_dev
    return state.st_ctime < began.st_ctime - (0 if same else CLOCK_S)


def end_here(what: str, remedy: str) -> None:
    """End a repeated launch before a change that cannot be undone. `os._exit` runs no handler: a
    handler could still make the change."""
    try:
        with open(os.path.join(MARKS_FOLDER, f"refused.{os.getpid()}"), "w") as stream:
            stream.write(f"{what}\n{remedy}")
    finally:
        LEAVE(ENDED)


def written_by(marks: str) -> list[str]:
    """Return files that other processes of the launch with these marks have open for writing."""
    wanted = os.fsencode(f"{MARKS}={marks}") + b"\0"
    this, found = str(os.getpid()), []
    for number in os.listdir("/proc") if marks and os.path.isdir("/proc") else ():
        if number.isdigit() and number != this:
            try:
                with open(f"/proc/{number}/environ", "rb") as stream:
                    if wanted in stream.read() + b"\0":
                        found += open_files(f"/proc/{number}")
            except OSError:
                continue  # it has ended, or belongs to another user
    return found


def open_files(process: str) -> list[str]:
    """Return the named files that a process, such as `/proc/self`, has open for writing."""
    found = []
    try:
        names = os.listdir(f"{process}/fd")
    except OSError:
        return []
    for name in names:
        try:
            with open(f"{process}/fdinfo/{name}") as stream:
                words = stream.read().split()
            flags = int(words[words.index("flags:") + 1], 8)
            path = os.readlink(f"{process}/fd/{name}")
            file = os.stat(f"{process}/fd/{name}")
            same = os.path.samestat(file, os.stat(path))
        except (OSError, ValueError):
            continue
        if flags & (os.O_WRONLY | os.O_RDWR) and stat.S_ISREG(file.st_mode) and same:
            found.append(path)
    return found


def located(path: Any, descriptor: Any = -1) -> str:
    """Return the absolute path, without following a last symlink; `descriptor`: its open folder."""
    name = os.fsdecode(path).rstrip("/") or "/"
    if isinstance(descriptor, int) and descriptor >= 0 and not os.path.isabs(name):
        name = os.path.join(os.readlink(f"/proc/self/fd/{descriptor}"), name)
    folder, last = os.path.split(name)
    if last in ("", ".", ".."):
        return os.path.realpath(name)
    # realpath, because `..` after a symlink means the folder above its target.
    return os.path.join(os.path.realpath(folder or "."), last)


def _linked(path: str, kept: str) -> bool:
    """Keep the file by a hard link; return False if that fails, as between two disks."""
    try:
        os.link(path, kept, follow_symlinks=False)
    except OSError:
        return False
    return True


def copy_file(path: str, copy: str) -> None:
    """Copy content, mode and times."""
    with open(path, "rb") as source, open(copy, "wb") as sink:
        while True:
            chunk = source.read(1 << 20)
            if not chunk:
                break
            Kept.bytes += sink.write(chunk)
    found = os.stat(path)
    os.chmod(copy, stat.S_IMODE(found.st_mode))
    os.utime(copy, ns=(found.st_atime_ns, found.st_mtime_ns))


def begin(rules: Any, root: int) -> Notes:
    """Start noting in the mode of `VARIABLE`; `rules` is the module `free_paths`."""
    mode, folder = os.environ[VARIABLE].split(":", 1)
    Kept.folder = folder
    free = rules.free_of(folder)

    def is_free(path: str) -> bool:
        return bool(rules.is_free(path, free))

    notes = Notes(folder, root, is_free, protects=mode == PROTECT)
    notes.at_start()
    atexit.register(notes.at_exit)
    sys.addaudithook(notes.hook)
    return notes
