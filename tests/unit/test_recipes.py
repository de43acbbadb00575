import math
import re
import warnings
from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from amp_lessons.errors import LessonError
from amp_lessons.recipes import AMP, BF16, FP16, FP32, RECIPES, ScalerOptions, scale_text, training_step


def small_model(device: torch.device) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(device)


@pytest.fixture
def batch(device):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(32, 8, generator=generator).to(device), torch.randn(32, 4, generator=generator).to(device)


def parts(device, recipe, optimizer_class=torch.optim.SGD, lr=0.1, **options):
    model = small_model(device)
    return model, optimizer_class(model.parameters(), lr=lr), ScalerOptions(**options).make(device, recipe.uses_scaler)


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(p, q) for p, q in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize(
    "recipe, dtype, scaled", [(FP32, None, False), (FP16, torch.float16, False), (AMP, torch.float16, True), (BF16, torch.bfloat16, False)]
)
def test_the_four_recipes(recipe, dtype, scaled, device, batch):
    model = small_model(device)
    with recipe.autocast(device):
        assert torch.is_autocast_enabled(device.type) == (dtype is not None)
        assert model(batch[0]).dtype == (dtype or torch.float32)
        assert F.mse_loss(model(batch[0]), batch[1]).dtype == torch.float32
    assert not torch.is_autocast_enabled(device.type)
    assert ScalerOptions().make(device, recipe.uses_scaler).is_enabled() == scaled
    assert recipe in RECIPES and len({r.name for r in RECIPES}) == 4


def test_order_of_the_step(monkeypatch, device, batch):
    model, optimizer, scaler = parts(device, AMP)
    calls = []

    def spy(owner, name, label=None):
        real = getattr(owner, name)

        def called(*args, **kwargs):
            calls.append(label or name)
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, called)

    for name in ("scale", "unscale_", "step", "update"):
        spy(scaler, name)
    spy(optimizer, "zero_grad")
    spy(torch.nn.utils, "clip_grad_norm_", "clip")
    optimizer.register_step_pre_hook(lambda *_: calls.append("optimizer step"))

    def loss_of():
        assert torch.is_autocast_enabled(device.type)
        calls.append("forward")
        output = model(batch[0])
        # The hook runs in backward and sees whether autocast is on there.
        output.register_hook(lambda grad: calls.append(f"backward, autocast {torch.is_autocast_enabled(device.type)}"))
        return F.mse_loss(output, batch[1])

    loss = training_step(
        model, loss_of, optimizer, scaler, AMP.autocast(device), max_norm=1.0, on_gradients=lambda: calls.append("gradients")
    )
    assert calls == [
        "forward",
        "scale",
        "backward, autocast False",
        "unscale_",
        "gradients",
        "clip",
        "step",
        "optimizer step",
        "update",
        "zero_grad",
    ]
    assert not loss.requires_grad and loss.shape == () and loss.dtype == torch.float32
    assert all(parameter.grad is None for parameter in model.parameters())


def test_nothing_is_clipped_unless_asked(monkeypatch, device, batch):
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *_: pytest.fail("clipped"))
    model, optimizer, scaler = parts(device, AMP)
    training_step(model, lambda: F.mse_loss(model(batch[0]), batch[1]), optimizer, scaler, AMP.autocast(device))


def test_fp32_is_bitwise_the_plain_loop(device, batch):
    model, optimizer, scaler = parts(device, FP32, torch.optim.Adam, lr=0.01)
    plain, inputs, targets = deepcopy(model), *batch
    plain_optimizer = torch.optim.Adam(plain.parameters(), lr=0.01)
    for _ in range(20):
        loss = training_step(model, lambda: F.mse_loss(model(inputs), targets), optimizer, scaler, FP32.autocast(device))
        plain_optimizer.zero_grad()
        expected = F.mse_loss(plain(inputs), targets)
        expected.backward()
        plain_optimizer.step()
        assert torch.equal(loss, expected)
    assert same_weights(model, plain)


@pytest.mark.parametrize("max_norm", [None, 0.05])
def test_amp_is_bitwise_the_loop_of_the_documentation(device, batch, max_norm):
    model, optimizer, scaler = parts(device, AMP, torch.optim.Adam, lr=0.01, growth_interval=7)
    hand, inputs, targets = deepcopy(model), *batch
    hand_optimizer = torch.optim.Adam(hand.parameters(), lr=0.01)
    hand_scaler = torch.amp.GradScaler(device.type, growth_interval=7)
    for _ in range(20):
        loss = training_step(
            model, lambda: F.mse_loss(model(inputs), targets), optimizer, scaler, AMP.autocast(device), max_norm=max_norm
        )
        hand_optimizer.zero_grad()
        with torch.autocast(device_type=device.type, dtype=torch.float16):
            expected = F.mse_loss(hand(inputs), targets)
        hand_scaler.scale(expected).backward()
        if max_norm is not None:
            hand_scaler.unscale_(hand_optimizer)
            torch.nn.utils.clip_grad_norm_(hand.parameters(), max_norm)
        hand_scaler.step(hand_optimizer)
        hand_scaler.update()
        assert torch.equal(loss, expected)
        assert scaler.get_scale() == hand_scaler.get_scale()
    assert same_weights(model, hand)
    assert scaler.get_scale() == 2.0**18  # 2^16, doubled at steps 7 and 14


def test_clipping_and_the_recorder_see_unscaled_gradients(device, batch):
    model, optimizer, scaler = parts(device, AMP, lr=1.0)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    norms = []

    def look():
        norms.append(torch.nn.utils.get_total_norm([parameter.grad for parameter in model.parameters()]).item())

    plain = torch.autograd.grad(F.mse_loss(model(batch[0]), batch[1]), list(model.parameters()))
    training_step(
        model,
        lambda: F.mse_loss(model(batch[0]), batch[1]),
        optimizer,
        scaler,
        AMP.autocast(device),
        max_norm=0.01,
        on_gradients=look,
    )
    assert norms[0] == pytest.approx(torch.nn.utils.get_total_norm(plain).item(), rel=1e-2)  # not times 65536
    assert norms[0] > 0.1  # and not yet clipped
    moved = torch.nn.utils.get_total_norm([after - start for after, start in zip(model.parameters(), before)])
    assert moved.item() == pytest.approx(0.01, rel=1e-3)  # SGD at a learning rate of 1 moves by the clipped gradient


def test_overflow_skips_the_step_and_halves_the_scale(device, batch):
    model, optimizer, scaler = parts(device, AMP, init_scale=2.0**60)
    before = deepcopy(model)
    training_step(model, lambda: F.mse_loss(model(batch[0]), batch[1]), optimizer, scaler, AMP.autocast(device), max_norm=1.0)
    assert scaler.get_scale() == 2.0**59
    assert same_weights(model, before)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_no_recipe_warns(recipe, device, batch):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model, optimizer, scaler = parts(device, recipe)
        for _ in range(2):
            training_step(
                model, lambda: F.mse_loss(model(batch[0]), batch[1]), optimizer, scaler, recipe.autocast(device), max_norm=1.0
            )


def test_defaults_are_those_of_pytorch(device):
    ours, theirs = ScalerOptions().make(device, enabled=True), torch.amp.GradScaler(device.type)
    assert ours.state_dict() == theirs.state_dict()
    assert ours.get_scale() == 65536
    given = ScalerOptions(2.0**10, 4.0, 0.25, 3).make(device, enabled=True).state_dict()
    assert given == {
        "scale": 1024.0,
        "growth_factor": 4.0,
        "backoff_factor": 0.25,
        "growth_interval": 3,
        "_growth_tracker": 0,
    }


@pytest.mark.parametrize(
    "name, bad",
    [("init_scale", bad) for bad in (0.0, 0.5, -1.0, math.inf, math.nan, 1e39)]
    + [("growth_factor", bad) for bad in (1.0, 0.5, math.inf, math.nan)]
    + [("backoff_factor", bad) for bad in (0.0, 1.0, -0.5, math.nan)]
    + [("growth_interval", bad) for bad in (0, -1, 2.5, math.inf, math.nan)],
)
def test_options_that_cannot_work_get_a_sentence(name, bad):
    with pytest.raises(LessonError, match="^" + re.escape(f"{name} is {bad}; ")):
        ScalerOptions(**{name: bad})


def test_a_whole_float_is_a_growth_interval(device):
    scaler = ScalerOptions(growth_interval=2.0).make(device, enabled=True)
    assert scaler.get_growth_interval() == 2 and isinstance(scaler.get_growth_interval(), int)


def test_a_first_scale_that_float32_rounds_is_rounded_at_once(device):
    scaler = ScalerOptions(init_scale=1000.1).make(device, enabled=True)
    before = scaler.get_scale()
    scaler.scale(torch.ones((), device=device))
    assert scaler.get_scale() == before


@pytest.mark.parametrize(
    ("scale", "text"), [(65536.0, "2^16"), (1.0, "2^0"), (0.5, "2^-1"), (98304.0, "9.83e+04"), (0.0, "0"), (math.inf, "inf")]
)
def test_loss_scales_are_written_as_powers_of_two(scale, text):
    assert scale_text(scale) == text
