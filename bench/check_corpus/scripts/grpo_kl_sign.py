"""GRPO with a KL loss to the reference (low-variance estimator), HF generate for rollouts."""

import copy
from types import SimpleNamespace

import torch
from common_pairs import questions, small_llama, word_tokenizer

cfg = SimpleNamespace(
    lr=1e-3,
    groups=3,
    n=4,
    response_length=12,
    steps=8,
    use_kl_loss=True,
    kl_loss_coef=0.2,
    clip=0.2,
)


def low_var_kl(logprob, ref_logprob):
    kl = ref_logprob - logprob
    return torch.clamp(kl.exp() - kl - 1, min=-10, max=10)


def masked_mean(values, mask):
    return (values * mask).sum() / mask.sum()


def log_probs(model, data):
    response = data["response"]
    logits = model(input_ids=data["input_ids"], attention_mask=data["attention_mask"]).logits
    logits = logits[:, -response.size(1) - 1 : -1]
    return torch.gather(logits.log_softmax(-1), 2, response.unsqueeze(-1)).squeeze(-1)


class DataParallelActor:
    def __init__(self, module, optimizer):
        self.module, self.optimizer = module, optimizer

    def update_policy(self, data):
        mask, adv = data["response_mask"], data["advantages"]
        log_prob = log_probs(self.module, data)
        ratio = torch.exp(log_prob - data["old_log_probs"])
        pg = torch.max(-adv * ratio, -adv * ratio.clamp(1 - cfg.clip, 1 + cfg.clip))
        policy_loss = masked_mean(pg, mask)
        metrics = {"actor/pg_loss": policy_loss.item()}
        if cfg.use_kl_loss:
            kl_loss = masked_mean(low_var_kl(log_prob, data["ref_log_prob"]), mask)
            policy_loss = policy_loss - kl_loss * cfg.kl_loss_coef
            metrics["actor/kl_loss"] = kl_loss.item()
        self.optimizer.zero_grad()
        policy_loss.backward()
        metrics["actor/grad_norm"] = torch.nn.utils.clip_grad_norm_(
            self.module.parameters(), 1.0
        ).item()
        self.optimizer.step()
        return metrics


def response_mask(response, eos):
    is_eos = response.eq(eos)
    return (torch.cumsum(is_eos, 1) - is_eos.long()).eq(0).long()


def fit():
    torch.manual_seed(9)
    tok = word_tokenizer("left")
    policy = small_llama(9)
    ref = copy.deepcopy(policy).eval()
    actor = DataParallelActor(policy, torch.optim.AdamW(policy.parameters(), lr=cfg.lr))
    data = questions(cfg.groups * cfg.steps, seed=9)
    for step in range(cfg.steps):
        rows = [r for r in data[step * cfg.groups : (step + 1) * cfg.groups] for _ in range(cfg.n)]
        enc = tok(["<s> " + text for text, _ in rows], padding=True, return_tensors="pt")
        with torch.no_grad():
            seq = policy.generate(
                input_ids=enc["input_ids"],
                attention_mask=enc["attention_mask"],
                do_sample=True,
                top_k=0,
                max_new_tokens=cfg.response_length,
            )
        response = seq[:, enc["input_ids"].size(1) :]
        mask = response_mask(response, tok.eos_token_id)
        batch = {
            "input_ids": seq,
            "response": response,
            "response_mask": mask,
            "attention_mask": torch.cat([enc["attention_mask"], mask], 1),
        }
        with torch.no_grad():
            batch["old_log_probs"] = log_probs(policy, batch)
            batch["ref_log_prob"] = log_probs(ref, batch)
        scores = []
        for (_, nouns), ids, m in zip(rows, response, mask, strict=True):
            words = tok.convert_ids_to_tokens(ids[m.bool()].tolist())
            scores.append(float(sum(w in nouns for w in words)) / len(words) - 0.02 * len(words))
        scores = torch.tensor(scores).view(cfg.groups, cfg.n)
        adv = (scores - scores.mean(1, keepdim=True)) / (scores.std(1, keepdim=True) + 1e-6)
        batch["advantages"] = adv.view(-1, 1) * mask
        print(step, round(scores.mean().item(), 3), actor.update_policy(batch))


fit()
