"""`canary serve`: its address, its errors and its end."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from canary.cli import main
from tests.unit.serve.running import add_rows, finished, rewrite, rows_between, running, serving


@contextmanager
def serving_process(root: Path, *words: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address and the process of `canary serve` on a free port."""
    command = [sys.executable, "-m", "canary.cli", "serve", str(root), "--port", "0", *words]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://\S+", line)
            assert found, process.communicate(timeout=10)
            yield found[0], process
        finally:
            process.kill()


def said(code: int, *words: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["serve", *words])
    assert ended.value.code == code
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_ctrl_c_ends_it_while_a_page_is_open(tmp_path: Path) -> None:
    folder = running(tmp_path)
    with serving_process(tmp_path) as (url, process):
        kept = http.client.HTTPConnection(url.removeprefix("http://").rstrip("/"))
        kept.request("GET", "/")
        assert folder.path.name in kept.getresponse().read().decode()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=40) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
        kept.close()


def test_readers_that_leave_and_broken_addresses_leave_no_traceback(tmp_path: Path) -> None:
    finished(tmp_path, 1)
    with serving_process(tmp_path) as (url, process):
        port = int(url.split(":")[2].strip("/"))
        whole = f"GET / HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode()
        for request in (whole[:20], whole):
            asking = socket.create_connection(("127.0.0.1", port), timeout=10)
            asking.sendall(request)
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            asking.close()  # It resets the connection.
        with socket.create_connection(("127.0.0.1", port), timeout=10) as asking:
            asking.sendall(f"GET http://[/ HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
            assert asking.recv(100).startswith(b"HTTP/1.0 400")
        process.send_signal(signal.SIGINT)
        process.wait(10)
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_a_page_follows_a_run_to_its_end(tmp_path: Path) -> None:
    folder = running(tmp_path)

    def page(url: str) -> str:
        with urllib.request.urlopen(f"{url}run/{folder.path.name}") as answer:
            return str(answer.read().decode())

    with serving(tmp_path) as url:
        assert "none yet" in page(url)
        add_rows(folder, rows_between(1, 5))
        assert "5 of 100" in page(url)
        rewrite(folder, status="completed")
        assert "data-region" not in page(url)
        shutil.rmtree(folder.path)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            page(url)


@pytest.mark.parametrize("names", [["localhost", "evil.example"], ["evil.example", "localhost"]])
def test_a_request_with_two_names_is_refused(tmp_path: Path, names: list[str]) -> None:
    with serving(tmp_path) as url:
        port = int(url.split(":")[2].strip("/"))
        hosts = "".join(f"Host: {name}:{port}\r\n" for name in names)
        with socket.create_connection(("127.0.0.1", port), timeout=10) as asking:
            asking.sendall(f"GET / HTTP/1.1\r\n{hosts}\r\n".encode())
            assert asking.recv(100).startswith(b"HTTP/1.0 403")


def test_it_listens_on_the_loopback_interface_only(tmp_path: Path) -> None:
    with serving(tmp_path) as url:
        port = int(url.split(":")[2].strip("/"))
        others = {
            str(found[4][0])
            for found in socket.getaddrinfo(socket.gethostname(), port, socket.AF_INET)
        }
        for other in (*others, "127.0.0.2"):
            if other != "127.0.0.1":
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection((other, port), timeout=2)
        socket.create_connection(("127.0.0.1", port), timeout=2).close()


def test_a_busy_port_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        error = said(4, str(tmp_path), "--port", port, capsys=capsys)
    assert error == (
        f"canary: port {port} is in use (choose another with --port; 0 takes a free one)\n"
    )


def test_what_cannot_be_served_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = finished(tmp_path, 1).path
    assert "does not exist" in said(2, str(tmp_path / "none"), capsys=capsys)
    assert f"is a run (canary serve {tmp_path})" in said(2, str(run), capsys=capsys)
