"""The clusters, each started by the first test that asks for it."""

from tests.integration.matrix.ray_cluster import ray
from tests.integration.matrix.slurm_cluster import slurm, slurm_session

__all__ = ["ray", "slurm", "slurm_session"]
