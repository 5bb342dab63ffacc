"""Tests in which the garbage collector sees a process of the size of a training's."""

from __future__ import annotations

from tests.unit.training.relations.conftest import small_process as small_process
