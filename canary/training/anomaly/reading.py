"""What a model's tensors say of a step, left on their device. Needs torch."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from canary.training.exact.parameters import local


def gradient_norm(parameters: Iterable[torch.Tensor]) -> torch.Tensor | None:
    """L2 norm of all gradients, as a 0-d tensor on the device of the first; None without any.

    Of a sharded model that of this rank's shards: hand over the trainer's own there.
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
