"""What a session writes of its config."""

from __future__ import annotations

from pathlib import Path

from canary.runner.session import _shown


def test_a_config_in_a_repository_is_named_as_there(tmp_path: Path) -> None:
    """A bisect's worktree is gone when somebody reads the path."""
    config = tmp_path / "tree" / "configs" / "canary.yaml"
    assert _shown(config) == str(config)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / ".git").write_text("gitdir: elsewhere")
    assert _shown(config) == "configs/canary.yaml"
    assert _shown(Path("canary.yaml")) == "canary.yaml"
