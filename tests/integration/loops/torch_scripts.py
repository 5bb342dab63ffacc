"""Loops of plain torch as users write them. Each prints its losses and a hash of its weights."""

from __future__ import annotations

from pathlib import Path

HEAD = '''
"""A user's own loop: knows nothing of the canary."""
import hashlib, json, os, sys
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
RATE, SCALE, STEPS, OFFSET = RATED, SCALED, STEPS_, SHIFTED
VOCABULARY, losses = 50, []

class Net(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.inner = nn.Linear(width, 2 * width)
        self.head = nn.Linear(2 * width, VOCABULARY)
    def forward(self, idx, targets=None):
        logits = self.head(torch.relu(self.inner(self.embed(idx))))
        if targets is None:
            return logits
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())

def data(rows=400, length=16):
    ids = torch.randint(0, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(3))
    return TensorDataset(ids, (3 * ids + 1) % VOCABULARY)

def loader(batch=8, **more):
    order = torch.Generator().manual_seed(11 + OFFSET)
    return DataLoader(data(), batch_size=batch, shuffle=True, generator=order, **more)

def ended(*models):
    digest = hashlib.sha256()
    for model in models:
        for value in model.state_dict().values():
            digest.update(value.detach().float().numpy().tobytes())
    print("losses", json.dumps(losses))
    print("weights", digest.hexdigest())
'''

PLAIN = """
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
for step, (ids, targets) in enumerate(loader()):
    if step == STEPS:
        break
    _, loss = model(ids, targets)
    loss = loss * SCALE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
ended(model)
"""

ACCUMULATED = """
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=RATE * 100, momentum=0.9)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
total = 0.0
for number, (ids, targets) in enumerate(loader(4)):
    if number == 4 * STEPS:
        break
    _, loss = model(ids, targets)
    loss = loss * SCALE / 4
    loss.backward()
    total += loss.item()
    if number % 4 == 3:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(total)
        total = 0.0
ended(model)
"""

SCALER = """
from torch.nn.utils import clip_grad_norm_
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
for step, (ids, targets) in enumerate(loader()):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(ids)
        loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten()) * SCALE
    optimizer.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_((p for p in model.parameters()), 1.0)
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    if scaler.get_scale() >= before:
        losses.append(loss.item())
    if len(losses) == STEPS:
        break
ended(model)
"""

GAN = """
maker = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 16))
judge = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
make_optimizer = torch.optim.Adam(maker.parameters(), lr=RATE, betas=(0.5, 0.999))
judge_optimizer = torch.optim.Adam(judge.parameters(), lr=RATE, betas=(0.5, 0.999))
for step, (real, _) in enumerate(loader()):
    if step == STEPS:
        break
    real = real.float() / VOCABULARY
    judge_optimizer.zero_grad()
    right = F.softplus(-judge(real)).mean()
    right.backward()
    fake = maker(torch.randn(8, 8))
    wrong = F.softplus(judge(fake.detach())).mean()
    wrong.backward()
    judge_optimizer.step()
    make_optimizer.zero_grad()
    loss = F.softplus(-judge(fake)).mean() * SCALE
    loss.backward()
    make_optimizer.step()
    losses.append(loss.item())
ended(maker, judge)
"""

CLOSURE = """
model = Net(8)
optimizer = torch.optim.LBFGS(model.parameters(), lr=RATE * 100, max_iter=4)
for step, (ids, targets) in enumerate(loader()):
    if step == STEPS:
        break
    def closure():
        optimizer.zero_grad()
        _, loss = model(ids, targets)
        loss = loss * SCALE
        loss.backward()
        return loss
    losses.append(optimizer.step(closure).item())
ended(model)
"""

CHECKPOINTED = """
from torch.utils.checkpoint import checkpoint
class Deep(Net):
    def forward(self, idx, targets):
        hidden = self.embed(idx)
        hidden = checkpoint(self.inner, hidden.requires_grad_(), use_reentrant=True)
        return F.cross_entropy(self.head(torch.relu(hidden)).flatten(0, 1), targets.flatten())
model = Deep()
optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
for step, (ids, targets) in enumerate(loader()):
    if step == STEPS:
        break
    loss = model(ids, targets) * SCALE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
ended(model)
"""

WITHOUT_LOADER = """
tokens = torch.randint(0, VOCABULARY, (4000,), generator=torch.Generator().manual_seed(5))
def get_batch(split):
    starts = torch.randint(len(tokens) - 17, (8,)) + OFFSET
    ids = torch.stack([tokens[i : i + 16] for i in starts])
    return ids, torch.stack([tokens[i + 1 : i + 17] for i in starts])
@torch.no_grad()
def estimate_loss():
    model.eval()
    found = [model(*get_batch("val"))[1].item() for _ in range(3)]
    model.train()
    return sum(found) / 3
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
ids, targets = get_batch("train")
step = 0
while True:
    if step % 4 == 0:
        estimate_loss()
    total = 0.0
    for micro in range(2):
        _, loss = model(ids, targets)
        loss = loss * SCALE / 2
        ids, targets = get_batch("train")
        loss.backward()
        total += loss.item()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    losses.append(total)
    step += 1
    if step == STEPS:
        break
ended(model)
"""


HELPED = (
    """
probe = nn.Linear(4, 1)
helper = torch.optim.SGD(probe.parameters(), lr=0.1)
for _ in range(3):
    helper.zero_grad()
    probe(torch.randn(8, 4)).pow(2).mean().backward()
    helper.step()
"""
    + PLAIN
)


COMPILED = PLAIN.replace(
    "model = Net()", "plain = Net()\nmodel = torch.compile(plain, backend='aot_eager')"
)


ACCELERATE = """
from accelerate import Accelerator
accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
model, optimizer, batches = accelerator.prepare(model, optimizer, loader())
total = 0.0
while len(losses) < STEPS:
    for ids, targets in batches:
        with accelerator.accumulate(model):
            _, loss = model(ids, targets)
            loss = loss * SCALE
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        total += loss.item() / 2
        if accelerator.sync_gradients:
            losses.append(total)
            total = 0.0
        if len(losses) == STEPS:
            break
ended(accelerator.unwrap_model(model))
"""

DDP = """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler
dist.init_process_group("gloo")
model = DistributedDataParallel(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
sampler = DistributedSampler(data(), seed=OFFSET)
for step, (ids, targets) in enumerate(DataLoader(data(), batch_size=4, sampler=sampler)):
    if step == STEPS:
        break
    _, loss = model(ids, targets)
    loss = loss * SCALE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
if dist.get_rank() == 0:
    ended(model.module)
dist.destroy_process_group()
"""

SHARDED = DDP.replace(
    "model = DistributedDataParallel(Net())",
    "from torch.distributed.device_mesh import init_device_mesh\n"
    "from torch.distributed.fsdp import fully_shard\n"
    "model = Net()\nfully_shard(model, mesh=init_device_mesh('cpu', (2,)))",
).replace("ended(model.module)", "print('losses', json.dumps(losses)); print('weights')")

GAN_OF_ONE_MODEL = """
class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.maker = nn.Sequential(nn.Linear(8, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 16))
        self.judge = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
both = Both()
makers = torch.optim.Adam(both.maker.parameters(), lr=RATE)
judges = torch.optim.Adam(both.judge.parameters(), lr=RATE)
made, judged = [], []
for step, (real, _) in enumerate(loader()):
    if step == STEPS:
        break
    both.judge.requires_grad_(False)
    loss = F.softplus(-both.judge(both.maker(torch.randn(8, 8)))).mean() * SCALE
    loss.backward()
    makers.step()
    makers.zero_grad()
    made.append(loss.item())
    both.judge.requires_grad_(True)
    fake = both.maker(torch.randn(8, 8)).detach()
    loss = F.softplus(both.judge(fake)).mean() + F.softplus(-both.judge(real / VOCABULARY)).mean()
    loss.backward()
    judges.step()
    judges.zero_grad()
    judged.append(loss.item())
losses = made if WIDTH > 32 else judged
ended(both)
"""
"""Two optimizers step in turn, each after a backward of its own; the larger one is recorded."""

INSIDE_BACKWARD = """
model = Net()
own = {value: torch.optim.AdamW([value], lr=RATE) for value in model.parameters()}

def update(value):
    own[value].step()
    own[value].zero_grad()

for value in model.parameters():
    value.register_post_accumulate_grad_hook(update)
for step, (ids, targets) in enumerate(loader()):
    if step == STEPS:
        break
    _, loss = model(ids, targets)
    loss = loss * SCALE
    loss.backward()
    losses.append(loss.item())
ended(model)
"""
"""An optimizer per parameter steps in backward, which frees each gradient at once (torchtune)."""

IN_EVALUATION_MODE = WITHOUT_LOADER.replace("model = Net()", "model = Net().eval()")
"""As trl's older PPO trains: with gradients, in evaluation mode."""

SCRIPTS = {
    "plain": PLAIN,
    "accumulated": ACCUMULATED,
    "scaler": SCALER,
    "gan": GAN,
    "closure": CLOSURE,
    "reentrant": CHECKPOINTED,
    "in_evaluation_mode": IN_EVALUATION_MODE,
    "helped": HELPED,
    "compiled": COMPILED,
    "accelerate": ACCELERATE,
}
"""Loops of one process by name."""
RANKS = {"ddp": DDP, "sharded": SHARDED}
"""Loops of two ranks by name."""


def write_script(
    folder: Path,
    loop: str,
    name: str = "train.py",
    *,
    steps: int = 6,
    rate: float = 1e-3,
    scale: float = 1.0,
    shift: int = 0,
) -> Path:
    """Writes the script of a loop: `scale` multiplies its loss, `shift` changes its batches."""
    text = HEAD.replace("SCALED", str(scale)).replace("STEPS_", str(steps))
    text = text.replace("RATED", str(rate))
    path = folder / name
    path.write_text(text.replace("SHIFTED", str(shift)) + loop)
    return path
