"""The fixtures of this folder."""

from tests.github.fixtures import description, github, webhooks

__all__ = ["description", "github", "webhooks"]
