"""A real Slurm with two nodes on this machine, for as long as the tests last."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from canary.matrix.attempt import Attempt
from canary.matrix.document import Slurm
from canary.matrix.queue import QueueLauncher
from canary.matrix.slurm import SlurmQueue
from tests.integration.matrix.clusters import child_of_tests, end, free_ports, require, wait_for

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "scontrol")
NODES = ("n1", "n2")
CONF = """
ClusterName=canary
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
ReturnToService=1
MessageTimeout=3
TCPTimeout=1
MpiDefault=none
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SwitchType=switch/none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 State=UNKNOWN
PartitionName=low Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=high Nodes=n1,n2 MaxTime=INFINITE State=UP PriorityTier=10
"""
"""`low` is preempted by `high`: its jobs go back into the queue."""


class SlurmCluster:
    """munged, slurmctld, and a slurmd for each node."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.conf = folder, folder / "slurm.conf"
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "munge").mkdir(mode=0o700)
        (folder / "state").mkdir()
        key = folder / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        self.conf.write_text(
            CONF.format(
                host=socket.gethostname().partition(".")[0],
                user=getpass.getuser(),
                folder=folder,
                ports=free_ports(1 + len(NODES)),
            )
        )

    def start(self) -> None:
        """Start all, and wait until both nodes are idle."""
        munge = self._folder / "munge"
        words = ["munged", "--foreground", "--force", f"--socket={munge / 'socket'}"]
        files = {"key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        words += [f"--{option}={munge / name}" for option, name in files.items()]
        self._start("munged", *words)
        wait_for((munge / "socket").exists, why="munged")
        self.start_controller()
        for node in NODES:
            self.start_node(node)
        wait_for(lambda: self.states() == {"idle"}, why="the nodes are not idle")

    def _start(self, name: str, *words: str) -> None:
        log = self._folder / f"{name}.out"
        self._children[name] = child_of_tests(words, log, SLURM_CONF=str(self.conf))

    def start_controller(self) -> None:
        """Start slurmctld."""
        self._start("slurmctld", "slurmctld", "-D")

    def start_node(self, node: str) -> None:
        """Start the slurmd of a node."""
        self._start(node, "slurmd", "-D", "-N", node)

    def states(self) -> set[str]:
        """Return the states of the nodes."""
        return {*self.asked("sinfo", "-h", "-N", "-p", "low", "-o", "%T").split()}

    def asked(self, *words: str) -> str:
        """Return what a program of Slurm prints; "" if it fails."""
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        return done.stdout

    def told(self, *words: str) -> None:
        """Run a program of Slurm."""
        subprocess.run(words, capture_output=True, check=True, timeout=60)

    def jobs(self, *states: str) -> list[str]:
        """Return the numbers of the jobs in these states; of all that wait or run without any."""
        which = [f"--states={','.join(states)}"] if states else []
        return self.asked("squeue", "-r", "-h", "-o", "%i", *which).split()

    def begin_now(self) -> None:
        """Start what was preempted, for which Slurm takes two minutes."""
        for job in self.jobs("PENDING"):
            with contextlib.suppress(subprocess.CalledProcessError):
                self.told("scontrol", "update", f"jobid={job}", "starttime=now")

    def clear(self) -> None:
        """End all jobs, and bring controller and nodes back."""
        if self._children["slurmctld"].poll() is not None:
            self.start_controller()
            wait_for(self.states, why="slurmctld")
        for node in NODES:
            if self._children[node].poll() is not None:
                self.start_node(node)
        for node in NODES:
            self.asked("scontrol", "update", f"nodename={node}", "state=resume")
        self.asked("scancel", f"--user={os.getuid()}")
        wait_for(lambda: not self.jobs(), why="jobs do not end")
        wait_for(lambda: self.states() == {"idle"}, why="the nodes are not idle")

    def stop(self) -> None:
        """End all jobs and programs."""
        self.asked("scancel", f"--user={os.getuid()}")
        last = time.monotonic() + 30
        while self.jobs() and time.monotonic() < last:
            time.sleep(0.2)
        for child in [*self._children.values()][::-1]:
            end(child)


@pytest.fixture(scope="session")
def slurm_session() -> Iterator[SlurmCluster]:
    require(PROGRAMS, "apt-get install slurm-wlm munge")
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    kept = os.environ.get("SLURM_CONF")
    cluster = SlurmCluster(folder)
    os.environ["SLURM_CONF"] = str(cluster.conf)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        os.environ.pop("SLURM_CONF")
        if kept is not None:
            os.environ["SLURM_CONF"] = kept
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def slurm(slurm_session: SlurmCluster) -> Iterator[SlurmCluster]:
    """A cluster on which nothing runs, before the test and after it."""
    yield slurm_session
    slurm_session.clear()


def launcher(
    folder: Path, in_queue: float = 600.0, for_files: float = 1.0, **keys: object
) -> QueueLauncher:
    """Return the launcher of a matrix in a folder, which looks often."""
    waits = {"longest_wait": in_queue / 60, "poll": 0.2, "late": for_files}
    given = Slurm.model_validate({"kind": "slurm", **waits, **keys})
    return QueueLauncher(SlurmQueue(given, folder), given)


def jobs_of(queue: QueueLauncher, *attempts: Attempt) -> list[str]:
    """Return the numbers of the jobs of tries."""
    assert isinstance(queue.queue, SlurmQueue)
    return [job for _, job, seen in queue.queue.jobs(attempts) if seen.phase != "over"]
