"""A folder as a user of `canary exec` has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.exec.user_scripts import sft_script, write_data


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and a script in it."""
    folder = tmp_path_factory.mktemp("own")
    write_data(folder)
    sft_script(folder)
    return folder
