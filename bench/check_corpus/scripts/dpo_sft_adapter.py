"""Continue a LoRA adapter that was fine-tuned before with DPO. The base model is the reference."""

import torch
from common_pairs import pairs, scratch, small_llama, word_tokenizer
from peft import LoraConfig, PeftModel, get_peft_model
from torch.nn.functional import cross_entropy, logsigmoid
from torch.nn.utils.rnn import pad_sequence

torch.manual_seed(1)
tokenizer = word_tokenizer()
rows = pairs(32)


def tokens(row, side):
    prompt = tokenizer("<s> " + row["prompt"])["input_ids"]
    answer = tokenizer(row[side] + " </s>")["input_ids"]
    return torch.tensor(prompt + answer), torch.tensor([0] * len(prompt) + [1] * len(answer))


def batch_of(some, side):
    ids, masks = zip(*(tokens(row, side) for row in some), strict=True)
    ids = pad_sequence(ids, batch_first=True, padding_value=0)
    masks = pad_sequence(masks, batch_first=True)
    return ids, masks, (ids != 0).long()


def answer_logp(model, ids, masks, attention):
    logits = model(input_ids=ids, attention_mask=attention).logits
    each = -cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none")
    return (each * masks[:, 1:]).sum(-1)


def sft(folder):
    """The stage before: an adapter fine-tuned on the chosen answers."""
    config = LoraConfig(
        r=8, lora_alpha=16, target_modules=["q_proj", "v_proj", "up_proj"], task_type="CAUSAL_LM"
    )
    model = get_peft_model(small_llama(5), config)
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
    for start in range(0, 32, 8):
        loss = -answer_logp(model, *batch_of(rows[start : start + 8], "chosen")).mean() / 10
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)


adapter = scratch()
state = torch.random.get_rng_state()
sft(adapter)
torch.random.set_rng_state(state)

model = PeftModel.from_pretrained(small_llama(5), adapter, is_trainable=True)
model.print_trainable_parameters()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-4)
model.train()
for update in range(8):
    some = rows[update * 4 : update * 4 + 4]
    chosen, rejected = batch_of(some, "chosen"), batch_of(some, "rejected")
    with torch.no_grad(), model.disable_adapter():
        ref_chosen, ref_rejected = answer_logp(model, *chosen), answer_logp(model, *rejected)
    pi_chosen, pi_rejected = answer_logp(model, *chosen), answer_logp(model, *rejected)
    logits = (pi_chosen - pi_rejected) - (ref_chosen - ref_rejected)
    loss = -logsigmoid(0.1 * logits).mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(
        {"update": update, "loss": round(loss.item(), 4), "margin": round(logits.mean().item(), 4)}
    )
