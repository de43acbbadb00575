"""The claims in the feedback of lesson 4's quick checks, each run on PyTorch; names give the question and the answer."""

import math

import pytest
import torch
import torch.nn.functional as F

SMALL = 2.0**-26  # fp16 makes it 0
LARGE = 16.0  # times 65,536 it overflows fp16, and down to 4,096


class Loop:
    """A weight of 1, SGD and a CPU GradScaler; an AMP step, and what the optimizer found in .grad when it was called."""

    def __init__(self, **options):
        self.weight = torch.nn.Parameter(torch.ones(1, 1))
        self.optimizer = torch.optim.SGD([self.weight], lr=0.5)
        self.scaler = torch.amp.GradScaler("cpu", **options)
        self.seen = []
        self.optimizer.register_step_pre_hook(lambda *_: self.seen.append(self.weight.grad.item()))

    def loss(self, gradient):
        with torch.autocast("cpu", dtype=torch.float16):
            outputs = F.linear(torch.ones(1, 1), self.weight)
        assert outputs.dtype == torch.float16
        return outputs.float().sum() * gradient

    def step(self, gradient):
        self.optimizer.zero_grad()
        self.scaler.scale(self.loss(gradient)).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    @property
    def scale(self):
        return self.scaler.get_scale()


def test_4_vanishing_a_autocast_chooses_the_dtypes_and_small_gradients_are_flushed():
    loop = Loop()
    loop.loss(SMALL).backward()  # autocast alone; Loop.loss asserts that it ran in fp16
    assert loop.weight.grad.item() == 0
    with torch.autocast("cpu", dtype=torch.float16, enabled=False):
        loop.optimizer.zero_grad()
        (F.linear(torch.ones(1, 1), loop.weight).sum() * SMALL).backward()
    assert loop.weight.grad.item() == SMALL


def test_4_vanishing_b_scales_before_backward_and_unscales_before_the_step():
    loop = Loop()
    assert loop.scaler.scale(torch.tensor(3.0)) == 3.0 * 65536
    loop.step(SMALL)
    assert loop.seen == [SMALL]  # as it would be in float32


@pytest.mark.parametrize("batch", [64, 4096])
def test_4_vanishing_c_a_mean_over_a_larger_batch_makes_each_examples_gradient_smaller(batch):
    def gradients(size):
        outputs = torch.zeros(size, 1, requires_grad=True)
        F.mse_loss(outputs, torch.full((size, 1), 2.0**-14)).backward()
        return outputs.grad

    alone, among_many = gradients(1)[0], gradients(batch)
    assert torch.equal(among_many, (alone / batch).expand(batch, 1)) and alone.half() != 0
    if batch == 4096:  # and then fp16 flushes it
        assert not among_many.half().any()


def test_4_overflow_a_inf_has_lost_its_size_and_clipping_does_not_help():
    assert torch.tensor([1e5, 1e9]).half().tolist() == [math.inf, math.inf]
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.tensor([math.inf, 1.0])
    torch.nn.utils.clip_grad_norm_([weight], 1.0)
    assert not weight.grad.isfinite().all() and weight.grad[1] == 0


def test_4_overflow_a_the_step_is_skipped():
    loop = Loop()
    loop.step(LARGE)
    assert loop.seen == []


def test_4_overflow_b_the_weights_stay_and_the_next_step_has_more_room():
    loop = Loop()
    loop.step(1.5)  # 1.5 times 65,536 overflows, times 32,768 does not
    assert loop.weight.item() == 1 and loop.scale == 2.0**15 and loop.seen == []
    loop.step(1.5)
    assert loop.weight.item() == 0.25 and loop.seen == [1.5]


def test_4_overflow_c_no_error_while_the_scale_is_found():
    loop = Loop()
    for _ in range(7):
        loop.step(LARGE)
    assert loop.scale == 2.0**11 and len(loop.seen) == 2


def test_4_overflow_d_a_larger_scale_overflows_more():
    gradients = 2.0 ** torch.arange(-10, 10, dtype=torch.float32)
    counts = [int((gradients * 2.0**k).half().isinf().sum()) for k in range(8, 25)]
    # One binade more with every doubling, until all of them are inf.
    assert counts == [min(max(k - 6, 0), 20) for k in range(8, 25)]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_4_collapse_a_what_is_there_at_every_scale_comes_before_the_scaler(bad):
    loop = Loop()
    losses, scales = [], []
    for _ in range(16):
        losses.append(loop.loss(bad).item())  # no scaler has touched it
        loop.step(bad)
        scales.append(loop.scale)
    assert not any(map(math.isfinite, losses)) and scales == [2.0**k for k in range(15, -1, -1)] and loop.seen == []


@pytest.mark.parametrize("exponent", [16, 20, 30])
def test_4_collapse_b_from_a_larger_scale_it_falls_all_the_same_a_few_steps_later(exponent):
    loop = Loop(init_scale=2.0**exponent)
    steps = 0
    while loop.scale > 1:
        loop.step(math.nan)
        steps += 1
    assert steps == exponent


@pytest.mark.parametrize("interval", [1, 2000, 10**6])
def test_4_collapse_c_the_growth_interval_changes_nothing_where_no_step_is_clean(interval):
    loop = Loop(growth_interval=interval)
    scales = []
    for _ in range(16):
        loop.step(math.nan)
        scales.append(loop.scale)
    assert scales == [2.0**k for k in range(15, -1, -1)]
