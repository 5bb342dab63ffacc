"""Runs the command line in this process."""

from __future__ import annotations

import pytest

from canary.cli import main
from tests.unit.imports.broken_inputs import Run


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def called(arguments: list[str]) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        heard = capsys.readouterr()
        code = ended.value.code
        return code if isinstance(code, int) else 1, heard.out, heard.err

    return called
