"""A loop of plain torch: rows from two workers, accumulation, a clip and a schedule."""

import numpy
import torch
from tiny import chats, model, tokenizer
from torch.nn.functional import pad
from torch.utils.data import DataLoader, Dataset

tok = tokenizer()
model = model(tok)


class Noisy(Dataset):
    """Rows whose words are hidden at random, so that each epoch differs."""

    def __init__(self, texts):
        self.rows = [tok(text, add_special_tokens=False)["input_ids"] for text in texts]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        ids = torch.tensor(self.rows[i])
        hidden = torch.from_numpy(numpy.random.random(len(ids)) < 0.2)
        return ids.masked_fill(hidden, tok.unk_token_id), ids


def collate(batch):
    width = max(len(ids) for ids, _ in batch)
    ids = torch.stack([pad(ids, (0, width - len(ids)), value=0) for ids, _ in batch])
    labels = torch.stack([pad(ids, (0, width - len(ids)), value=-100) for _, ids in batch])
    return {"input_ids": ids, "attention_mask": (labels != -100).long(), "labels": labels}


ACCUMULATE, EPOCHS = 2, 3
torch.manual_seed(0)
data = Noisy([tok.apply_chat_template(chat, tokenize=False) for chat in chats(48)])
loader = DataLoader(data, batch_size=4, shuffle=True, collate_fn=collate, num_workers=2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
total = EPOCHS * len(loader) // ACCUMULATE
schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=total)
for _ in range(EPOCHS):
    for i, batch in enumerate(loader, 1):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(**batch).loss / ACCUMULATE
        loss.backward()
        if i % ACCUMULATE == 0:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            print(loss.item(), norm.item())
