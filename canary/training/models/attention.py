"""The attention kernel of a canary's model: from transformers, a package or the hub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import PreTrainedModel

from canary.errors import ConfigError
from canary.training import adapt

if TYPE_CHECKING:
    from canary.config.schema import CanaryConfig

PACKAGES = {
    "flash_attention_2": "pip install flash-attn --no-build-isolation",
    "flash_attention_3": "install FlashAttention 3 for your GPU",
}


def options(config: CanaryConfig) -> dict[str, Any]:
    """Return arguments of `from_pretrained` for the kernel; empty if transformers chooses.

    Kernels from the hub are code, so only those of `kernels-community` work without
    `trust_remote_code`.
    """
    chosen = config.attn_implementation
    if chosen is None:
        return {}
    found: dict[str, Any] = {"attn_implementation": chosen}
    takes = adapt.parameters(PreTrainedModel.set_attn_implementation)
    if "/" in chosen and config.trust_remote_code and "allow_all_kernels" in takes:
        found["allow_all_kernels"] = True
    return found


def set_on(model: Any, config: CanaryConfig) -> None:
    """Set the config's kernel on a model. Raises ConfigError if the kernel cannot be used."""
    found = options(config)
    if not found:
        return
    try:
        model.set_attn_implementation(found.pop("attn_implementation"), **found)
    except (ImportError, OSError, ValueError) as error:
        raise unusable(config, error) from error


def is_about(config: CanaryConfig, error: Exception) -> bool:
    """Return whether a model failed to load because of its attention kernel."""
    chosen = config.attn_implementation
    return chosen is not None and (isinstance(error, ImportError) or chosen in str(error))


def unusable(config: CanaryConfig, error: Exception) -> ConfigError:
    """Return the error for an unusable kernel, with the package that is missing."""
    chosen = config.attn_implementation or ""
    install = PACKAGES.get(chosen, "install what it needs")
    if "/" in chosen:
        install = "pip install kernels and let this machine reach the hub once"
    return ConfigError(
        f"attn_implementation {chosen} cannot be used: {' '.join(str(error).split())[:200]}",
        f"{install}, or choose eager or sdpa",
        key="attn_implementation",
    )


def check_dtype(config: CanaryConfig) -> None:
    """Raise ConfigError for a kernel that only computes in 16 bits in a float32 training."""
    if (config.attn_implementation or "").startswith("flash_") and config.dtype == "float32":
        raise ConfigError(
            f"attn_implementation {config.attn_implementation} computes in 16 bits, but dtype is "
            "float32",
            "set dtype: bfloat16, or choose sdpa",
            key="attn_implementation",
        )
