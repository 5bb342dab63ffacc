"""The gradient norm of a model, left on its device. Needs torch."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from canary.training.exact.parameters import local


def gradient_norm(parameters: Iterable[torch.Tensor]) -> torch.Tensor | None:
    """Return the L2 norm of all gradients, a 0-d tensor on the first one's device; None without.

    For a sharded model it is the norm of this rank's shards: use the trainer's norm instead.
    """
    gradients = [local(p.grad) for p in parameters if p.grad is not None]
    if not gradients:
        return None
    with torch.no_grad():
        dense = [g.coalesce().values() if g.is_sparse else g for g in gradients]
        norms = torch._foreach_norm(dense)
        device = norms[0].device
        if len({norm.device for norm in norms}) > 1:
            norms = [norm.to(device, non_blocking=True) for norm in norms]
        return torch.linalg.vector_norm(torch.stack(norms).float())
