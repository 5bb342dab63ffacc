"""Notes which files a launch of the user's command changes, and keeps their state before that.

Runs in each Python process of the command, before anything else does. Standard library only, and
little of it. What writes from native code is heard through `canary.training.attach.writers`, what a shell or
another program writes is not heard (see `canary.runner.exec.left_files`).
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
"""In the environment of a launch: `note:FOLDER`, or `guard:FOLDER` where it may change nothing that
cannot be put back. Notes and kept files go to the folder, which lies two below the run's own."""
NOTE, GUARD = "note", "guard"
MARKS = "_RLHF_CANARY_MARKS"
KEPT_BYTES = 256 << 20
"""Bytes that one process copies at most: this happens in the middle of the user's training."""
LOOKED_AT = 10_000
"""Entries of a folder that are looked at, at most."""
ENDED = 70
"""Exit code of a process that was ended here."""
BEGAN_AT, ENDED_AT = "began.", "ended."
"""How the files begin whose times say when a process began and ended."""
BEGUN_WITH = os.environ.get(MARKS, "")
"""The folder of marks: the program may clear its environment."""
ROOM = "make room on the disk"
CLOCK_S = 0.05
"""A file's time may be this much older than the clock was when it was written."""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_TRUNC | os.O_CREAT
NEW, KEPT, LINK, FOLDER, UNKEPT, OUTPUT, TEMPORARY, LISTED, CACHE, MADE_IN = "NKSDUOTFCM"
WRITTEN_TO, UNHEARD = "WH"
"""Kinds of a note: nothing was there; a file that is kept; a symlink; a folder; a file that could
not be kept; what a shell or another program writes to; made by `tempfile`; the names in a folder; a
folder that is a cache; made in, or moved along with, a folder that this process made; opened for
writing once more; changed while this process ran, unheard by it."""
LINKED, COPIED = "linked.", "copied."
"""How the name of a kept file begins: it is the file itself, or its copy. It ends with the numbers
of the disk and of the file."""
PATHS: dict[str, tuple[tuple[int, int], ...]] = {
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.rename": ((0, 2), (1, 3)),
    "os.symlink": ((1, 2),),
    "os.link": ((1, 3),),
}
"""Audit events by where their arguments hold a path and the open folder that it is relative to."""
WRITTEN = ("os.truncate", "os.chmod", "os.chown", "os.utime", "sqlite3.connect")
MADE = ("tempfile.mkstemp", "tempfile.mkdtemp")
EVENTS = frozenset((*PATHS, *WRITTEN, *MADE, "open", "socket.bind"))
NAMES = (str, bytes, os.PathLike)
SQLITE = ("-journal", "-wal", "-shm")


class Kept:
    """Where this process keeps notes and copies, and how many bytes it wrote there: counters of the
    training's own writes leave them out (see `canary.training.collectors.calls`)."""

    folder = ""
    bytes = 0


class Notes:
    """The notes of this process; the first of a path counts, in a folder as told by `VARIABLE`.

    `root` is the number of the first Python process in the line of processes that led to this one.
    """

    def __init__(
        self, folder: str, root: int, is_free: Callable[[str], bool], *, guards: bool = False
    ) -> None:
        self._folder = folder
        self._root = root
        self._is_free = is_free
        self._guards = guards
        self._seen: set[str] = set()
        self._new: set[str] = set()
        self._listed: dict[str, set[str]] = {}
        self._busy: set[int] = set()
        self._kept: dict[tuple[int, int], str] = {}
        """What was kept, by the number of the file: it may have several names."""
        self._given: set[str] = set()
        """Files that were open for writing when this process began: a shell's."""
        self._room = KEPT_BYTES
        self._looked = False
        """Whether it was seen what other programs of the command write to."""

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        """An audit hook: raises nothing, and comes some hundred times a step for other events."""
        if event not in EVENTS:
            return
        thread = get_ident()
        if thread in self._busy:
            return
        self._busy.add(thread)
        try:
            self._heard(event, args)
        except (OSError, TypeError, ValueError):
            return  # no path, or the run that asked for notes is over
        finally:
            self._busy.discard(thread)

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
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
            self._say(TEMPORARY, path)
        elif not (event == "os.mkdir" and os.path.isdir(located(args[0], args[2]))):
            paths = [located(args[place], args[of]) for place, of in PATHS[event]]
            for path in paths:
                self._note(path, moves=True)
            if event == "os.rename":
                self._along(*paths)
                self._again(paths[1])

    def opened(self, path: Any, flags: int, descriptor: int) -> None:
        """Before a file is opened by a path that is relative to an open folder."""
        if flags & WRITES and isinstance(path, NAMES):
            self.hook("open", (located(path, descriptor), None, flags))

    @contextmanager
    def deaf(self) -> Iterator[None]:
        """What this thread does now was noted before."""
        thread = get_ident()
        was = thread in self._busy
        self._busy.add(thread)
        try:
            yield
        finally:
            if not was:
                self._busy.discard(thread)

    def trains(self) -> None:
        """A training begins: a shell has started what its output goes to by now."""
        with self.deaf():
            self._outputs()
        self._looked = False

    def _outputs(self) -> None:
        """Files that other programs of the command have open for writing, such as `tee`."""
        self._looked = True
        for path in written_by(BEGUN_WITH):
            self._other(path)

    def writes(self, path: Any) -> None:
        """For what writes without a word to Python; anything but a path is none of ours."""
        if isinstance(path, NAMES):
            for _ in range(2):  # it may open a file more than once
                self.hook("open", (os.fspath(path), None, os.O_WRONLY))

    def begins(self) -> None:
        """What is there at the start of this process: a shell may have opened files for it."""
        with self.deaf(), suppress(OSError, ValueError):
            for path in open_files("/proc/self"):
                self._given.add(path)
                self._other(path)
            if os.getpid() == self._root:
                self._touch(BEGAN_AT)
                self._list(os.getcwd())

    def ends(self) -> None:
        """Python ends here. Native code may write to what it has open even after that."""
        with self.deaf(), suppress(OSError, ValueError):
            for path in open_files("/proc/self"):
                if path not in self._seen | self._given and not self._is_free(path):
                    self._say(UNKEPT, path, "native code still had open when Python ended")
            self._unheard()
            if os.getpid() == self._root:
                self._touch(ENDED_AT)

    def _unheard(self) -> None:
        """What changed in the folders that this process wrote to, as it ends: a later stage of the
        command may rename it, or write to it once more."""
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
                    self._say(UNHEARD, path)

    def _touch(self, name: str) -> None:
        with open(os.path.join(self._folder, f"{name}{self._root}"), "w"):
            pass

    def _other(self, path: str) -> None:
        """A file that another program of the command writes to."""
        if path not in self._seen and not self._is_free(path):
            self._list(os.path.dirname(path))
            self._say(OUTPUT, path)

    def cache(self, path: str) -> None:
        """A folder that the next launch is to find as it is left."""
        self._say(CACHE, os.path.realpath(path))

    def _written(self, path: str | bytes) -> None:
        # What is written to is at the end of symlinks.
        place = os.path.realpath(located(path))
        if self._kept:
            self._part(place)
        self._note(place, moves=False)
        self._again(place)

    def _again(self, path: str) -> None:
        """Each time that a further launch writes to a file: whoever else does is told from it."""
        if self._guards and not self._is_free(path):
            self._say(WRITTEN_TO, path)

    def _note(self, path: str, *, moves: bool) -> None:
        """`moves`: the file itself stays as it is and loses this name at most."""
        if path in self._seen or self._is_free(path):
            return
        self._seen.add(path)
        if not self._looked:
            self._outputs()
        if self._is_new(path) and not os.path.lexists(path):
            self._say(MADE_IN, path)
            return
        self._list(os.path.dirname(path))
        try:
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            self._new.add(path)
            self._say(NEW, path)
            return
        if stat.S_ISREG(found.st_mode):
            self._file(path, found, moves)
        elif stat.S_ISLNK(found.st_mode):
            self._say(LINK, path, os.readlink(path))
        elif stat.S_ISDIR(found.st_mode):
            self._say(FOLDER, path, oct(stat.S_IMODE(found.st_mode)))
            self._below(path)

    def _is_new(self, path: str) -> bool:
        """Whether the path is in a folder that this process made."""
        while path != "/":
            path = os.path.dirname(path)
            if path in self._new:
                return True
        return False

    def _below(self, folder: str) -> None:
        """All that goes with a folder which is renamed."""
        looked = 0
        for root, folders, files in os.walk(folder):
            looked += len(folders) + len(files)
            if looked > LOOKED_AT:
                self._cannot(folder, f"holds more than {LOOKED_AT:,} files")
                return
            for name in (*folders, *files):
                self._note(os.path.join(root, name), moves=True)

    def _along(self, source: str, target: str) -> None:
        """All that a renamed folder takes with it is the command's at its new place."""
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
                    self._say(MADE_IN, path)

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
            self._say(LISTED, folder, "/".join(names))

    def _file(self, path: str, found: os.stat_result, moves: bool) -> None:
        file, name = (found.st_dev, found.st_ino), f"{os.getpid()}.{time.time_ns()}"
        name += f".{found.st_dev}.{found.st_ino}"
        if file in self._kept:
            self._say(KEPT, path, self._kept[file])
            return
        if moves and _linked(path, os.path.join(self._folder, LINKED + name)):
            self._kept[file] = f"{LINKED}{name}/{found.st_mtime_ns}"
            self._say(KEPT, path, self._kept[file])
            return
        if found.st_size > self._room:
            self._cannot(path, f"has {found.st_size:,} bytes, too many to keep a copy")
            return
        self._room -= found.st_size
        try:
            copy_file(path, os.path.join(self._folder, COPIED + name))
        except OSError as error:
            with suppress(OSError):
                os.remove(os.path.join(self._folder, COPIED + name))
            self._cannot(path, f"cannot be copied: {error.strerror}")
            return
        self._kept[file] = f"{COPIED}{name}/{found.st_mtime_ns}"
        self._say(KEPT, path, self._kept[file])

    def _part(self, path: str) -> None:
        """A file that only lost a name so far is written to: its copy is kept from here on."""
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

    def _cannot(self, path: str, why: str) -> None:
        if self._guards:
            end_here(f"change {path}, which {why}", "make it change what the first launch changes")
        self._say(UNKEPT, path, why)

    def _say(self, kind: str, path: str, more: str = "") -> None:
        """Whole or not at all; opened anew each time, as the user may close any descriptor."""
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
            if self._guards:
                end_here(f"change {path}, of which no note can be kept ({error.strerror})", ROOM)
            raise


def is_older(state: os.stat_result, began: os.stat_result) -> bool:
    """Whether a file last changed before the file `began` was made; times of one disk are steps of
    one clock."""
    same = state.st_dev == began.st_dev
    return state.st_ctime < began.st_ctime - (0 if same else CLOCK_S)


def end_here(what: str, remedy: str) -> None:
    """Ends a further launch before it does what could not be undone. Nobody's handler runs: it
    could go on to do what this is here to prevent."""
    try:
        with open(os.path.join(BEGUN_WITH, f"guarded.{os.getpid()}"), "w") as stream:
            stream.write(f"{what}\n{remedy}")
    finally:
        os._exit(ENDED)


def written_by(marks: str) -> list[str]:
    """Files that another process of the launch with these marks has open for writing."""
    wanted = os.fsencode(f"{MARKS}={marks}") + b"\0"
    own, found = str(os.getpid()), []
    for number in os.listdir("/proc") if marks and os.path.isdir("/proc") else ():
        if number.isdigit() and number != own:
            try:
                with open(f"/proc/{number}/environ", "rb") as stream:
                    if wanted in stream.read() + b"\0":
                        found += open_files(f"/proc/{number}")
            except OSError:
                continue  # it ended, or is another user's
    return found


def open_files(process: str) -> list[str]:
    """Files that a process, such as `/proc/self`, has open for writing, and that have a name."""
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
    """The absolute path, of one that may be relative to an open folder; a symlink stays one."""
    name = os.fsdecode(path).rstrip("/") or "/"
    if isinstance(descriptor, int) and descriptor >= 0 and not os.path.isabs(name):
        name = os.path.join(os.readlink(f"/proc/self/fd/{descriptor}"), name)
    folder, last = os.path.split(name)
    if last in ("", ".", ".."):
        return os.path.realpath(name)
    # By realpath first: `..` after a symlink is the folder above its target.
    return os.path.join(os.path.realpath(folder or "."), last)


def _linked(path: str, kept: str) -> bool:
    """Whether a second name keeps the file: not where it is on another disk."""
    try:
        os.link(path, kept, follow_symlinks=False)
    except OSError:
        return False
    return True


def copy_file(path: str, copy: str) -> None:
    """Content, mode and times."""
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
    """Notes from here on, as the environment asks; `rules` is the module `canary.runner.exec.free_paths`."""
    wanted, folder = os.environ[VARIABLE].split(":", 1)
    Kept.folder = folder
    free = rules.free_of(folder)

    def is_free(path: str) -> bool:
        return bool(rules.is_free(path, free))

    notes = Notes(folder, root, is_free, guards=wanted == GUARD)
    notes.begins()
    atexit.register(notes.ends)
    sys.addaudithook(notes.hook)
    return notes
