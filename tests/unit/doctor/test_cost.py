"""What watching costs: the same steps with and without it, taken in turns, so that a busy machine slows both."""

from __future__ import annotations

import statistics
import time

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from amp_lessons.doctor import watch


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def mlp_step(width, depth, rows):
    """float32, clipped, Adam."""
    torch.manual_seed(0)
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    x = torch.randn(rows, width)

    def step():
        optimizer.zero_grad()
        F.mse_loss(model(x), x).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return model, optimizer, step


def transformer_step(width, depth, rows, length):
    """float32, clipped, AdamW: a language model in small."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
    model = nn.Sequential(nn.Embedding(64, width), encoder, nn.Linear(width, 64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    words = torch.randint(0, 64, (rows, length))

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(words).flatten(0, 1), words.flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return model, optimizer, step


def ratio(make, blocks, in_block):
    """Median over pairs of blocks of watched over bare time for a step, after the closer look at the first iterations."""
    plain, (model, optimizer, watched) = make()[2], make()
    with watch(model, optimizer) as doctor:
        for _ in range(8):
            plain(), watched()
        found = []
        for _ in range(blocks):
            doctor._observer.quiet = False
            start = time.process_time()
            for _ in range(in_block):
                watched()
            middle = time.process_time()
            doctor._observer.quiet = True  # bare steps of the other model must not be heard at all
            with _deaf():
                again = time.process_time()
                for _ in range(in_block):
                    plain()
                end = time.process_time()
            found.append((middle - start) / (end - again))
    assert doctor._steps >= blocks * in_block
    return statistics.median(found)


class _deaf:
    """PyTorch without any patch for a while."""

    def __enter__(self):
        from amp_lessons.doctor import patches

        self.patches, (self.observer,) = patches, patches.observers()
        patches.detach(self.observer)

    def __exit__(self, *_):
        self.patches.attach(self.observer)


def test_events_cost_less_than_a_tenth_of_an_mlps_step():
    assert ratio(lambda: mlp_step(512, 4, 256), blocks=9, in_block=3) < 1.10


def test_events_cost_less_than_a_tenth_of_a_transformers_step():
    assert ratio(lambda: transformer_step(128, 2, 16, 64), blocks=9, in_block=2) < 1.10
