"""Train a very small GPT on characters with gradient accumulation, in the style of minimal GPT repositories."""

import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

TEXT = "the scale grows when all is well and halves when it is not. " * 40
VOCABULARY = sorted(set(TEXT))
BLOCK, WIDTH, HEADS, ACCUMULATE, BATCH = 16, 32, 2, 4, 8
MISTAKE = os.environ.get("MISTAKE", "")


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, HEADS, c // HEADS).transpose(1, 2) for part in self.qkv(x).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # [b, heads, t, c / heads]
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.first, self.second = Attention(), nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(len(VOCABULARY), WIDTH), nn.Embedding(BLOCK, WIDTH)
        self.blocks, self.norm = nn.Sequential(Block(), Block()), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, len(VOCABULARY))

    def forward(self, indices, targets=None):
        x = self.tokens(indices) + self.places(torch.arange(indices.shape[1], device=indices.device))
        logits = self.head(self.norm(self.blocks(x)))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
        return logits, loss


torch.manual_seed(1337)
device = "cuda" if torch.cuda.is_available() else "cpu"
data = torch.tensor([VOCABULARY.index(c) for c in TEXT])


def get_batch():
    starts = torch.randint(len(data) - BLOCK - 1, (BATCH,))
    x = torch.stack([data[s : s + BLOCK] for s in starts])
    y = torch.stack([data[s + 1 : s + BLOCK + 1] for s in starts])
    return x.to(device), y.to(device)


model = GPT().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), fused=MISTAKE == "fused")
scaler = torch.amp.GradScaler(device, init_scale=2.0**12)
context = torch.amp.autocast(device_type=device, dtype=torch.float16)

for iteration in range(8):
    for group in optimizer.param_groups:
        group["lr"] = 1e-3 * 0.5 * (1 + math.cos(math.pi * iteration / 8))
    for micro_step in range(ACCUMULATE):
        x, y = get_batch()
        with context:
            logits, loss = model(x, y)
            loss = loss if MISTAKE == "divide" else loss / ACCUMULATE
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if MISTAKE == "past":
        optimizer.step()
    else:
        scaler.step(optimizer)
    scaler.update(scaler.get_scale() if MISTAKE == "past" else None)
    optimizer.zero_grad(set_to_none=True)
    print(f"iter {iteration}: loss {loss.item():.3f}")
