"""What a stranger's code in the container tries on the runner: read its files through the artifact,
stay there, speak to it.

The scripts are the action's own, the libraries that pack the artifact are the upload action's own,
the runner's user has no rights. The container is a process on the folders that would be mounted.
"""

from __future__ import annotations

import os
import stat
import subprocess
import time
from pathlib import Path

import pytest

from tests.integration.action.strangers import (
    CPU,
    MANIFEST,
    SECRET,
    USER,
    Machine,
    cancelled,
    machine,
    packer,
    until,
)

__all__ = ["machine", "packer"]


HONEST = f"""
mkdir -p "$RECORDS/00-canary/current/run-1/profiler"
printf '{{}}' >"$RECORDS/00-canary/current/run-1/metrics.json"
printf 'rows' >"$RECORDS/00-canary/current/run-1/profiler/trace.json"
printf '%s' '{MANIFEST}' >"$RECORDS/gate.json"
"""
HONEST_FILES = {
    "00-canary/current/run-1/metrics.json",
    "00-canary/current/run-1/profiler/trace.json",
    "gate.json",
}


def test_an_honest_record_is_uploaded_whole_and_nothing_stays(machine: Machine) -> None:
    machine.stranger(HONEST)
    done = machine.job()
    assert done.returncode == 0, done.stderr
    assert set(machine.uploaded()) == HONEST_FILES
    assert [path.name for path in machine.runner.temp.iterdir()] == ["canary-records"]


LINKS = {
    "a link in a folder that refuses its removal": """
mkdir -p "$RECORDS/00"; ln -s {file} "$RECORDS/00/c"; chmod 0555 "$RECORDS/00"
""",
    "a linked folder": """
mkdir "$RECORDS/00"; ln -s {folder} "$RECORDS/00/all"; chmod 0555 "$RECORDS/00"
""",
    "the environment of the uploading process": """
mkdir "$RECORDS/00"; ln -s /proc/self/environ "$RECORDS/00/e"; chmod 0555 "$RECORDS/00"
""",
    "a scratch folder that refuses its removal": """
mkdir -p "$SCRATCH/x/y"; touch "$SCRATCH/x/y/z"; chmod 0555 "$SCRATCH/x/y"
ln -s {file} "$RECORDS/c"
""",
    "a records folder without any right": 'ln -s {file} "$RECORDS/c"; chmod 0 "$RECORDS"',
    "a link in the manifest's place": 'ln -sf {file} "$RECORDS/gate.json"',
    "a folder in the manifest's place": """
rm "$RECORDS/gate.json"; mkdir "$RECORDS/gate.json"; ln -s {file} "$RECORDS/gate.json/x"
chmod 0555 "$RECORDS/gate.json"
""",
    "a hard link": 'ln {own} "$RECORDS/hard.txt" && : >"$STANDIN/linked"',
    "links at every depth": """
d="$RECORDS"; for i in 1 2 3 4 5 6 7 8 9; do d="$d/d$i"; mkdir "$d"; ln -s {folder} "$d/l"; done
chmod -R a-w "$RECORDS/d1"
""",
}


@pytest.mark.spread(3)
@pytest.mark.parametrize("how", LINKS)
def test_no_file_of_the_runner_leaves_through_the_artifact(machine: Machine, how: str) -> None:
    own = machine.root / "actions-runner" / "own"
    own.write_text(SECRET)
    if machine.runner.user is not None:
        os.chown(own, machine.runner.user, machine.runner.user)
    place = {"file": machine.credentials, "folder": machine.credentials.parent, "own": own}
    machine.stranger(HONEST + LINKS[how].format(**place))
    machine.job()
    assert how != "a hard link" or (machine.standin / "linked").exists(), "the link was made"
    sent = machine.uploaded()
    assert not [name for name, content in sent.items() if SECRET.encode() in content]
    assert not [name for name in sent if name.endswith(("/e", "/environ"))]
    assert set(sent) <= HONEST_FILES
    assert "gate.json" in sent

    machine.stranger(HONEST)
    assert machine.job().returncode == 0, "the next run of this runner works"
    assert set(machine.uploaded()) == HONEST_FILES


def test_odd_files_stay_behind_and_the_records_go_on(machine: Machine) -> None:
    odd = """
mkfifo "$RECORDS/00-canary/pipe"
printf x >"$RECORDS/00-canary/new
line.json"
printf x >"$RECORDS/00-canary/-rf"
printf x >"$RECORDS/00-canary/a b"
printf x >"$RECORDS/00-canary/$(printf '\\xff\\xfe')"
printf x >"$RECORDS/00-canary/a:b"
d="$RECORDS"; for i in $(seq 200); do d="$d/d"; mkdir "$d" || break; done; printf x >"$d/f"
"""
    machine.stranger(HONEST + odd)
    done = machine.job()
    assert done.returncode == 0
    assert set(machine.uploaded()) == HONEST_FILES


@pytest.mark.slow
@pytest.mark.parametrize(
    "large",
    [
        'truncate -s 33M "$RECORDS/00-canary/sparse"',
        'truncate -s 1T "$RECORDS/00-canary/sparse"',
        'for i in $(seq 9); do truncate -s 31M "$RECORDS/00-canary/f$i"; done',
        'for i in $(seq 2100); do : >"$RECORDS/00-canary/f$i"; done',
    ],
)
def test_records_over_the_caps_are_an_error_that_says_so(machine: Machine, large: str) -> None:
    machine.stranger(HONEST + large)
    machine.job()
    assert machine.reason().startswith("the records are too large")
    held = sum(path.stat().st_blocks * 512 for path in machine.records.rglob("*"))
    assert held < 300 << 20


def test_files_that_forbid_to_be_read_are_read_all_the_same(machine: Machine) -> None:
    machine.stranger(HONEST + 'find "$RECORDS" -depth -exec chmod 0 {} +')
    machine.job()
    assert set(machine.uploaded()) == HONEST_FILES


def test_a_folder_with_modes_of_all_kinds_is_gone_afterwards(machine: Machine) -> None:
    machine.stranger(
        HONEST + 'd="$SCRATCH"; for i in $(seq 30); do d="$d/d"; mkdir "$d"; : >"$d/f"; done\n'
        'find "$SCRATCH/d" -depth -type d -exec chmod 0 {} \\;'
    )
    machine.job()
    assert [path.name for path in machine.runner.temp.iterdir()] == ["canary-records"]


def test_chmod_of_what_is_left_follows_no_link(machine: Machine) -> None:
    shown = machine.root / "actions-runner"
    machine.credentials.chmod(0o400)
    machine.stranger(HONEST + f'ln -s {shown} "$SCRATCH/a"; ln -s {shown} "$RECORDS/a"')
    machine.job()
    assert stat.S_IMODE(machine.credentials.stat().st_mode) == 0o400
    assert machine.credentials.read_text() == SECRET


WAITS = (
    HONEST
    + 'mkdir -p "$RECORDS/00"; ln -s {secret} "$RECORDS/00/c"; : >"$SCRATCH/begun"; sleep 600'
)


@pytest.mark.parametrize("verb", ["gate run", "gate setup"])
def test_a_cancelled_job_leaves_no_container_and_no_process(machine: Machine, verb: str) -> None:
    """The setup container has network."""
    body = WAITS.replace("{secret}", str(machine.credentials))
    machine.stranger(f'if [ "$VERB" = "{verb}" ]; then :; {body}; fi')
    begun = machine.runner.temp / "canary-run" / "home" / "begun"
    cancelled(machine, {"setup": "pip install ."}, begun)
    assert machine.containers() == []
    until(lambda: not machine.processes(), 5)
    sent = machine.uploaded()
    assert set(sent) == HONEST_FILES
    assert [path.name for path in machine.runner.temp.iterdir()] == ["canary-records"]


def test_a_job_cancelled_while_the_image_arrives_starts_no_container_later(
    machine: Machine,
) -> None:
    (machine.standin / "pull_s").write_text("2")
    machine.stranger(': >"$STANDIN/started"')
    called = machine.standin / "called"
    cancelled(machine, {}, _WhenCalled(called, "run "))  # type: ignore[arg-type]
    until(lambda: not machine.processes(), 5)
    assert not (machine.standin / "started").exists()
    assert "ended before it left a record" in machine.reason()


class _WhenCalled:
    """Stands for a file that is there once docker was called with a word."""

    def __init__(self, path: Path, word: str) -> None:
        self.path, self.word = path, word

    def exists(self) -> bool:
        return self.path.exists() and self.word in self.path.read_text()


@pytest.mark.slow
def test_a_container_that_docker_cannot_remove_keeps_its_files_to_itself(machine: Machine) -> None:
    (machine.standin / "stuck").touch()
    machine.gives_up_after(5)
    machine.stranger(WAITS.replace("{secret}", str(machine.credentials)))
    cancelled(machine, {}, machine.runner.temp / "canary-run" / "home" / "begun")
    try:
        assert set(machine.uploaded()) == {"gate.json"}
        assert "could not be removed" in machine.reason()
    finally:
        (machine.standin / "stuck").unlink()
        machine.stranger(HONEST)
        machine.job()
    assert machine.containers() == [], "the next job of this runner removes it"
    assert not machine.processes()


def test_containers_of_other_runners_are_left_alone(machine: Machine) -> None:
    others = machine.standin / "containers"
    others.mkdir()
    (others / "neighbour").write_text("999999999")
    (others / "neighbour.labels").write_text("rlhf-canary.runner=another\n")
    machine.stranger(HONEST)
    machine.job()
    assert machine.containers() == ["neighbour", "neighbour.labels"]


def test_records_of_an_earlier_job_are_never_uploaded_again(machine: Machine) -> None:
    machine.stranger(HONEST)
    machine.job()
    done = machine.job({"timeout-minutes": "soon"})
    assert done.returncode == 2
    assert set(machine.uploaded()) == {"gate.json"}
    assert "timeout-minutes" in machine.reason()


def test_a_file_name_of_the_checkout_is_no_command_to_the_runner(machine: Machine) -> None:
    folder = machine.runner.workspace / "x\n::error::told ##[add-mask]pass" / ".git"
    folder.mkdir(parents=True)
    (folder / "config").write_text("[http]\n\textraheader = AUTHORIZATION: basic x\n")
    for path in [folder.parent, *folder.parent.rglob("*")] if os.getuid() == 0 else []:
        os.chown(path, 23456, 23456)
    done = machine.job()
    assert done.returncode == 2
    said = (done.stdout + done.stderr).splitlines()
    assert not [line for line in said if line.startswith("::error") or "##[" in line]
    assert "keeps credentials" in machine.reason()


def test_setup_has_network_and_so_neither_cache_nor_data(machine: Machine) -> None:
    machine.stranger(HONEST)
    shared = machine.root / "shared"
    for name in ("cache/hub", "data"):
        (shared / name).mkdir(parents=True)
    machine.job(
        {
            "setup": "pip install .",
            "model-cache": str(shared / "cache"),
            "docker-args": f"--volume={shared}/data:/data:ro\n--memory=8g",
        }
    )
    setup, training = [call for call in machine.calls() if call.startswith("run ")]
    assert str(shared) not in setup
    assert "--memory=8g" in setup
    assert f"{shared}/cache/hub:/models/hub:ro" in training
    assert f"--volume={shared}/data:/data:ro" in training
    assert "--network none" in training


def test_what_is_mounted_is_what_the_path_really_names(machine: Machine) -> None:
    shared = machine.root / "shared"
    (shared / "data").mkdir(parents=True)
    (shared / "newest").symlink_to("data")
    machine.stranger(HONEST)
    machine.job({"docker-args": f"--volume={shared}/newest:/data:ro"})
    (training,) = [call for call in machine.calls() if call.startswith("run ")]
    assert f"--volume={shared}/data:/data:ro" in training


@pytest.mark.spread(3)
@pytest.mark.parametrize(
    ("where", "link_to"),
    [
        ("actions-runner", ""),
        ("actions-runner/_work", ""),
        ("actions-runner/_work/repo/repo/data", ""),
        ("actions-runner/_work/repo/repo/data", "actions-runner"),
        ("actions-runner/_work/repo/repo/data", "shared"),
        ("shared/data", "actions-runner"),
        ("actions-runner/_work/_temp", ""),
        ("home/data", ""),
        ("shared/data", "home"),
        ("", ""),
        ("nowhere", ""),
    ],
)
def test_volumes_of_the_runner_and_of_the_checkout_are_refused(
    machine: Machine, where: str, link_to: str
) -> None:
    """A folder of the checkout may be its author's link; what holds the runner is refused too."""
    folder = machine.root / where
    if link_to:
        folder.symlink_to(machine.root / link_to)
    elif where != "nowhere":
        folder.mkdir(parents=True, exist_ok=True)
    done = machine.job({"docker-args": f"--volume={folder}:/data:ro"})
    assert done.returncode == 2, done.stderr
    assert not [call for call in machine.calls() if call.startswith("run ")]
    assert "docker-args" in machine.reason()


def test_an_image_without_a_digest_is_warned_about(machine: Machine) -> None:
    machine.stranger(HONEST)
    done = machine.job({"image": "registry.example/canary:v1"})
    assert done.returncode == 0
    assert (
        "::warning title=RLHF Canary::image registry.example/canary:v1 has no digest" in done.stdout
    )
    assert "::warning" not in machine.job(CPU).stdout


def test_minutes_with_a_leading_zero_are_a_number(machine: Machine) -> None:
    machine.stranger(HONEST)
    assert machine.job({"timeout-minutes": "099"}).returncode == 0
    (training,) = [call for call in machine.calls() if call.startswith("run ")]
    assert f"CANARY_LIMIT_S={99 * 60 + 90}" in training
    assert f"CANARY_IMAGE={CPU['image']}" in training


def test_the_nightly_run_has_four_hours_unless_somebody_says_otherwise(machine: Machine) -> None:
    machine.stranger(HONEST)
    machine.runner.extra = {**machine.runner.extra, "GITHUB_EVENT_NAME": "schedule"}
    assert machine.job(CPU).returncode == 0
    assert machine.job(CPU | {"timeout-minutes": "9"}).returncode == 0
    nightly, other = [call for call in machine.calls() if call.startswith("run ")]
    assert f"CANARY_LIMIT_S={240 * 60 + 90}" in nightly
    assert f"CANARY_LIMIT_S={9 * 60 + 90}" in other


def test_training_refuses_the_event_that_has_secrets(machine: Machine) -> None:
    machine.stranger(HONEST)
    machine.runner.extra = {**machine.runner.extra, "GITHUB_EVENT_NAME": "pull_request_target"}
    assert machine.job().returncode == 2
    assert not [call for call in machine.calls() if call.startswith("run ")]
    assert "pull_request_target" in machine.reason()


def test_without_docker_what_the_training_left_running_is_ended(machine: Machine) -> None:
    machine.runner.install(
        "canary",
        f"""setsid sleep 98765 >/dev/null 2>&1 &
mkdir -p "$CANARY_RECORDS"; printf '%s' '{MANIFEST}' >"$CANARY_RECORDS/gate.json" """,
    )
    machine.job({"engine": "none", "image": ""})
    assert set(machine.uploaded()) == {"gate.json"}
    until(lambda: not [line for line in sleeping() if line == "sleep 98765"], 5)


def sleeping() -> list[str]:
    """Command lines of the processes that the machine's user runs."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and entry.stat().st_uid == (
                USER if os.getuid() == 0 else os.getuid()
            ):
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip())
        except OSError:
            continue
    return found


def test_records_of_a_job_that_ended_by_force_are_not_those_of_the_next(machine: Machine) -> None:
    """Its always() step never ran, and the training of the next job did not start."""
    machine.stranger(HONEST)
    machine.runner.step("Train", CPU | {"mode": "run"})
    (machine.root / "output").unlink()
    machine.runner.step("Collect the records", CPU | {"mode": "run"})
    assert set(machine.uploaded()) == {"gate.json"}
    assert "stopped before the canary started" in machine.reason()
    assert not (machine.runner.temp / "canary-run").exists()


SECRETS = {
    "docker-args": ["--env=HF_TOKEN=hf_word", "--env HF_TOKEN=hf_word", "hf_word"],
    "env": ["CERTIFICATE=begin\nhf_word", "HF_TOKEN=hf_word", "X=https://hf_word@example.org"],
    "image": ["hf_word --privileged"],
}


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in SECRETS.items() for value in values]
)
def test_a_refused_input_does_not_publish_its_value(
    machine: Machine, name: str, value: str
) -> None:
    """The reason reaches the comment, where nothing masks it."""
    done = machine.job({name: value})
    assert done.returncode == 2
    assert name in machine.reason()
    assert "hf_word" not in machine.reason() + done.stdout + done.stderr


def test_a_process_that_cannot_be_read_to_the_end_holds_nothing_up(machine: Machine) -> None:
    """A process can make its environment endless; a large one stands for it."""
    machine.stranger(WAITS.replace("{secret}", "x"))
    large = ["env", "-i", *(f"V{number}={'x' * 100_000}" for number in range(18)), "sleep", "60"]
    others = [
        subprocess.Popen(large, user=machine.runner.user, group=machine.runner.user)
        for _ in range(3)
    ]
    try:
        begun = time.monotonic()
        cancelled(machine, {}, machine.runner.temp / "canary-run" / "home" / "begun")
        assert time.monotonic() - begun < 60
        assert machine.containers() == []
        assert all(other.poll() is None for other in others), "other processes live on"
    finally:
        for other in others:
            other.kill()
            other.wait()


@pytest.mark.slow
def test_a_docker_that_hangs_does_not_outlast_the_job(machine: Machine) -> None:
    machine.gives_up_after(5)
    machine.stranger(WAITS.replace("{secret}", "x"))
    begun = machine.runner.temp / "canary-run" / "home" / "begun"
    hangs = machine.standin / "hangs"
    started = time.monotonic()
    cancelled(machine, {}, begun, before_collecting=hangs.touch)
    assert time.monotonic() - started < 45
    assert set(machine.uploaded()) == {"gate.json"}
    hangs.unlink()
    machine.stranger(HONEST)
    machine.job()
    assert machine.containers() == []


@pytest.mark.slow
def test_more_than_can_be_looked_at_is_an_error_in_bounded_time(machine: Machine) -> None:
    many = """
cd "$RECORDS"; long=$(printf 'x%.0s' $(seq 200))
for i in $(seq 1 300); do mkdir "$i~"; (cd "$i~"; for j in $(seq 80); do : >"$long$j"; done); done
"""
    machine.stranger(HONEST + many)
    begun = time.monotonic()
    machine.job()
    assert time.monotonic() - begun < 100
    assert machine.reason().startswith("the records are too large")


def test_what_cannot_be_removed_is_put_aside_and_the_next_job_works(machine: Machine) -> None:
    machine.stranger(HONEST)
    machine.runner.install(
        "rm", 'case "$*" in *canary-run|*canary-left-*) exit 1;; esac; exec /bin/rm "$@"'
    )
    assert machine.job().returncode == 0
    assert set(machine.uploaded()) == HONEST_FILES
    assert [path for path in machine.runner.temp.iterdir() if path.name.startswith("canary-left-")]
    assert machine.job().returncode == 0
    (machine.root / "bin" / "rm").unlink()
    machine.job()
    assert [path.name for path in machine.runner.temp.iterdir()] == ["canary-records"]


def test_a_script_whose_shell_was_ended_starts_no_container(machine: Machine) -> None:
    """Cancelled before its mark was known, nobody would end it."""
    machine.stranger(': >"$STANDIN/started"')
    script = machine.root / "action" / "scripts" / "run.sh"
    environment = {"STANDIN": str(machine.standin), "RUNNER_TEMP": str(machine.runner.temp)}
    environment |= {"PATH": f"{machine.root / 'bin'}:{os.environ['PATH']}"}
    environment |= {"CANARY_IMAGE": str(CPU["image"]), "CANARY_GPUS": "none"}
    (machine.standin / "slow").write_text("1")
    subprocess.run(
        ["bash", "-c", f'bash "{script}" >/dev/null 2>&1 & sleep 0.3; kill -KILL $$'],
        env=environment,
        cwd=machine.runner.workspace,
        user=machine.runner.user,
        group=machine.runner.user,
        check=False,
    )
    until(lambda: not machine.processes(), 20)
    assert not (machine.standin / "started").exists()
