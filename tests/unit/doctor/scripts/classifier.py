"""Train an image classifier with mixed precision: clipping, a warm-up schedule, checkpoints, worker processes.

Written as such scripts usually are. ``--mistake`` plants one of the mistakes that people make.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--mistake", choices=["none", "clip", "scheduler", "checkpoint", "crash"], default="none")
    return parser.parse_args()


def make_data():
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(256, 1, 8, 8, generator=generator)
    labels = (images.mean(dim=(1, 2, 3)) > 0.5).long()
    return TensorDataset(images, labels)


def train_one_epoch(model, loader, criterion, optimizer, scaler, scheduler, device, args):
    model.train()
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        with torch.autocast(device.type, dtype=torch.float16):
            loss = criterion(model(images), labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        if args.mistake != "clip":
            scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        if args.mistake == "scheduler" or scaler.get_scale() >= before:
            scheduler.step()
        if args.mistake == "crash":
            scaler.unscale_(optimizer)
            scaler.unscale_(optimizer)


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    right = sum((model(x.to(device)).argmax(1).cpu() == y).sum().item() for x, y in loader)
    return right / len(loader.dataset)


def main():
    args = parse()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(make_data(), batch_size=32, shuffle=True, num_workers=args.workers)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 2)).to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=args.epochs * len(loader) + 1)
    scaler = torch.amp.GradScaler(device.type, init_scale=2.0**24)
    for epoch in range(args.epochs):
        train_one_epoch(model, loader, criterion, optimizer, scaler, scheduler, device, args)
        print(f"epoch {epoch}: accuracy {evaluate(model, loader, device):.2f}")
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        if args.mistake != "checkpoint":
            state["scaler"] = scaler.state_dict()
        with tempfile.TemporaryDirectory() as folder:
            torch.save(state, Path(folder) / "last.pt")
    sys.exit(0)


if __name__ == "__main__":
    main()
