"""Load the model and its tokenizer: embedded, random, from a local folder or from the hub. Its
attention kernel comes from transformers, a package or the hub."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from peft import LoraConfig
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BitsAndBytesConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    set_seed,
)

from canary.errors import ConfigError, InputError
from canary.inputs.embedded import RANDOM_SIZES, parse_random_name, reward_dir, tiny_dir
from canary.inputs.locations import model_folder
from canary.protocol.spec import WorkloadSpec
from canary.training import adapt

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

    from canary.config.schema import CanaryConfig

ATTENTION_PACKAGES = {
    "flash_attention_2": "pip install flash-attn --no-build-isolation",
    "flash_attention_3": "install FlashAttention 3 for your GPU",
}


def attention_options(config: CanaryConfig) -> dict[str, Any]:
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


def unusable_attention(config: CanaryConfig, error: Exception) -> ConfigError:
    """Return the error for an unusable kernel, with the package that is missing."""
    chosen = config.attn_implementation or ""
    install = ATTENTION_PACKAGES.get(chosen, "install what it needs")
    if "/" in chosen:
        install = "pip install kernels and let this machine reach the hub once"
    return ConfigError(
        f"attn_implementation {chosen} cannot be used: {' '.join(str(error).split())[:200]}",
        f"{install}, or choose eager or sdpa",
        key="attn_implementation",
    )


Loaded = TypeVar("Loaded")

# Padding tokens that a vocabulary may have without declaring them (pythia: <|padding|>).
_PAD_CANDIDATES = ("<|padding|>", "<|pad|>", "<pad>", "[PAD]", "<|finetune_right_pad_id|>")
_NEW_PAD = "<|pad|>"


def load_tokenizer(spec: WorkloadSpec) -> PreTrainedTokenizerBase:
    """Return the model's tokenizer, with a pad token that is not its end-of-sequence token.

    Random models use the embedded tokenizer. Raises InputError if it cannot be loaded.
    """
    config = spec.config
    tokenizer: PreTrainedTokenizerBase = _from_source(
        spec,
        lambda source, options: AutoTokenizer.from_pretrained(
            source, **options, padding_side="left", truncation_side="left"
        ),
    )
    if tokenizer.eos_token is None:
        raise InputError(
            f"the tokenizer of '{config.model_name}' has no end-of-sequence token",
            "set eos_token in its tokenizer_config.json",
        )
    _ensure_pad_token(tokenizer)
    return tokenizer


def load_model(spec: WorkloadSpec, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Return the initial policy with float32 (or quantized) weights; it can embed every token.

    Raises InputError if the model cannot be loaded, ConfigError if quantization cannot be used.
    """
    config = spec.config
    set_seed(config.seed)
    quantization = _quantization(spec)
    options = {**adapt.dtype_option(torch.float32), **attention_options(config), **quantization}
    size = parse_random_name(config.model_name)
    if size is None:
        model = _from_source(spec, lambda source, access: _load(spec, source, access, options))
        _fit_embeddings(model, tokenizer)
    else:
        model = _random_model(spec, size, tokenizer)
        if quantization or spec.config.trainer.classifies:
            save_initial(spec, model)
            set_seed(config.seed)
            model = _load(spec, model.config._name_or_path, {}, options)
    kernel = config.attn_implementation or ""
    if kernel.startswith("flash_") and config.dtype == "float32":
        raise ConfigError(
            f"attn_implementation {kernel} computes in 16 bits, but dtype is float32",
            "set dtype: bfloat16, or choose sdpa",
            key="attn_implementation",
        )
    return model


def reference_of(spec: WorkloadSpec, model: PreTrainedModel) -> PreTrainedModel | None:
    """Return a frozen copy of the policy, or None if trl needs none.

    By default trl reloads the reference by the model's name. This fails for a model built in
    memory, and ignores the revision and any resized embedding. With an adapter, trl switches the
    adapter off instead. With precomputed log-probabilities, it uses the policy before step 1.
    """
    if spec.config.use_peft or spec.config.trainer_args.get("precompute_ref_log_probs"):
        return None
    reference: PreTrainedModel = copy.deepcopy(model)
    reference.requires_grad_(False)
    reference.train(False)
    return reference


def save_initial(spec: WorkloadSpec, model: PreTrainedModel) -> None:
    """Save the model under `scratch_dir` and name it after that folder, for code that reloads it.

    Each rank saves a copy, because each has a separate folder, perhaps on another machine. Newer
    transformers let only rank 0 write, unless the model overrides that.
    """
    folder = str(spec.scratch_dir / "initial_model")
    if hasattr(model, "should_save_on_this_rank"):
        model.should_save_on_this_rank = lambda is_main_process: True
        model.save_pretrained(folder)
        del model.should_save_on_this_rank
    else:
        model.save_pretrained(folder)
    model.config._name_or_path = folder


def _random_model(
    spec: WorkloadSpec, size: str, tokenizer: PreTrainedTokenizerBase
) -> PreTrainedModel:
    config = spec.config
    model: PreTrainedModel = random_llama(size, config.seed, len(tokenizer))
    model.config.pad_token_id = tokenizer.pad_token_id
    model.config.eos_token_id = tokenizer.eos_token_id
    kernel = attention_options(config)
    try:
        if kernel:
            model.set_attn_implementation(kernel.pop("attn_implementation"), **kernel)
    except (ImportError, OSError, ValueError) as error:
        raise unusable_attention(config, error) from error
    return model


def _load(
    spec: WorkloadSpec, source: str, access: dict[str, Any], options: dict[str, Any]
) -> PreTrainedModel:
    architecture: Any = AutoConfig.from_pretrained(source, **access)
    dropout: float = getattr(architecture, "attention_dropout", 0.0)
    if dropout and spec.config.trainer_args.get("disable_dropout", spec.config.trainer.no_dropout):
        # trl's disable_dropout reaches nn.Dropout modules only, not this functional dropout
        architecture.attention_dropout = 0.0
    family: Any = AutoModelForCausalLM
    if spec.config.trainer.classifies:
        family = AutoModelForSequenceClassification
        _one_label(source, architecture)
    model: PreTrainedModel = family.from_pretrained(
        source, config=architecture, **access, **options
    )
    return model


def _one_label(source: str, architecture: Any) -> None:
    """Set a reward model's single output. Raises InputError for a classifier of several labels."""
    classifies = any("Classification" in name for name in architecture.architectures or ())
    if classifies and architecture.num_labels != 1:
        raise InputError(
            f"model '{source}' is a classifier of {architecture.num_labels} labels, but a reward "
            "model has one",
            "name the base model, or a reward model with num_labels 1",
        )
    architecture.num_labels = 1


def _from_source(spec: WorkloadSpec, load: Callable[[str, dict[str, Any]], Loaded]) -> Loaded:
    """Run `load(source, access)` for the folder or hub id that the config's model name means."""
    config = spec.config

    def attending(source: str, access: dict[str, Any]) -> Loaded:
        try:
            return load(source, access)
        except (ImportError, OSError, ValueError) as error:
            chosen = config.attn_implementation
            if chosen is not None and (isinstance(error, ImportError) or chosen in str(error)):
                raise unusable_attention(config, error) from error
            raise

    trusted = config.trust_remote_code
    return from_named(config.model_name, attending, config.model_revision, trusted=trusted)


def _quantization(spec: WorkloadSpec) -> dict[str, Any]:
    config = spec.config
    if not (config.load_in_4bit or config.load_in_8bit):
        return {}
    key = "load_in_4bit" if config.load_in_4bit else "load_in_8bit"
    if importlib.util.find_spec("bitsandbytes") is None:
        raise ConfigError(
            f"{key} needs bitsandbytes, which is not installed",
            "pip install bitsandbytes",
            key=key,
        )
    quantized: Any = BitsAndBytesConfig
    settings = {
        "load_in_4bit": config.load_in_4bit,
        "load_in_8bit": config.load_in_8bit,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_compute_dtype": getattr(torch, config.dtype),
    }
    return {"quantization_config": quantized(**settings)}


def _ensure_pad_token(tokenizer: PreTrainedTokenizerBase) -> None:
    """Set a pad token that is not EOS: masking padding would also mask EOS out of the labels."""
    if tokenizer.pad_token is not None and tokenizer.pad_token_id != tokenizer.eos_token_id:
        return
    vocabulary = tokenizer.get_vocab()
    known = (token for token in _PAD_CANDIDATES if token in vocabulary)
    tokenizer.add_special_tokens({"pad_token": next(known, _NEW_PAD)})


def _fit_embeddings(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Grow the embedding only if a token's id lies outside it (pythia's has spare rows)."""
    highest = max(tokenizer.get_vocab().values())
    embedding: Any = model.get_input_embeddings()
    if highest >= embedding.num_embeddings:
        model.resize_token_embeddings(highest + 1, mean_resizing=False)


_HEAD_SIZE = 64
_MAX_POSITIONS = 2048


def random_llama(size: str, seed: int, vocab_size: int) -> LlamaForCausalLM:
    """Return a Llama of RANDOM_SIZES[size] with float32 weights drawn from `seed`. The global CPU
    generator does not change."""
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = RANDOM_SIZES[size]
    heads = shape.hidden // _HEAD_SIZE
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=_MAX_POSITIONS,
        attention_dropout=0.0,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


def lora_config(spec: WorkloadSpec) -> LoraConfig | None:
    """Return LoRA over every linear layer but the output head, or None if `use_peft` is off.

    The head of a reward model is new, so it is trained in full.
    """
    config = spec.config
    if not config.use_peft:
        return None
    assert config.lora_r is not None  # the config's defaults are filled in before a launch
    assert config.lora_alpha is not None
    assert config.lora_dropout is not None
    return LoraConfig(
        r=config.lora_r,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules="all-linear",
        bias="none",
        task_type="SEQ_CLS" if config.trainer.classifies else "CAUSAL_LM",
    )


def from_named(
    name: str,
    load: Callable[[str, dict[str, Any]], Loaded],
    revision: str | None = None,
    *,
    trusted: bool = False,
    what: str = "model",
) -> Loaded:
    """Run `load(source, access)` for the folder or hub id that `name` means.

    `access`: arguments of `from_pretrained`. `trusted`: code from the hub may run. `what`: the word
    for the model in errors. Raises InputError if nothing has that name or it cannot be loaded;
    ImportErrors pass through.
    """
    folder = model_folder(name, what)
    access: dict[str, Any] = {"trust_remote_code": trusted}
    if folder in (reward_dir(), tiny_dir()):
        access = {}
    elif folder is None and revision is not None:
        access["revision"] = revision
    try:
        return load(str(folder or name), access)
    except (OSError, ValueError, SafetensorError) as error:
        raise _not_loadable(f"{what} '{name}'", folder is not None, error) from error


def _not_loadable(what: str, is_folder: bool, error: Exception) -> Exception:
    """Return the InputError for a failed load, or the error itself if the disk or memory failed."""
    if isinstance(error, OSError) and error.errno is not None:
        return error
    lines = [line for line in str(error).strip().splitlines() if line]
    reason = " ".join(lines[:4])[:300] if lines else type(error).__name__
    if is_folder or not isinstance(error, OSError):
        return InputError(
            f"{what} cannot be loaded: {reason}",
            "check its config.json, weights and tokenizer files, and trust_remote_code",
        )
    return InputError(
        f"{what} is not a local folder, and the Hugging Face hub did not provide it: {reason}",
        "check the name, its revision, the network, HF_HUB_OFFLINE and HF_TOKEN",
    )
