"""What gradients under fp16 autocast look like, and what a recorder can and cannot know about them."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from amp_lessons.errors import LessonError
from amp_lessons.gradients import GradientRecorder, gradients_of, lost_share
from amp_lessons.histograms import ExponentHistogram


def perceptron(device: torch.device) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)]
    return nn.Sequential(*layers).to(device)


def gradients(device: torch.device, weight: float, half: bool, model: nn.Module | None = None) -> list[torch.Tensor]:
    """Parameter gradients of a weighted loss: the same weights and batch each time."""
    generator = torch.Generator().manual_seed(1)
    inputs, targets = torch.randn(256, 32, generator=generator), torch.randn(256, 8, generator=generator)
    model = model or perceptron(device)
    with torch.autocast(device.type, dtype=torch.float16, enabled=half):
        loss = F.mse_loss(model(inputs.to(device)), targets.to(device))
    (loss * weight).backward()
    return gradients_of(model)


@pytest.mark.parametrize("weight", [1.0, 2.0**-14, 2.0**10])
def test_under_autocast_every_gradient_is_float32_and_fits_fp16(device, weight):
    for grad in gradients(device, weight, half=True):
        assert grad.dtype == torch.float32
        assert torch.equal(grad, grad.half().float())
    assert any(not torch.equal(grad, grad.half().float()) for grad in gradients(device, weight, half=False))


def test_so_an_amp_run_alone_cannot_see_what_was_flushed(device):
    seen = ExponentHistogram.of(*gradients(device, 2.0**-14, half=True))
    assert seen.flushed_share() == 0
    assert seen.shares().zero > 0.5


def test_the_forecast_under_predicts_once_activation_gradients_flush(device):
    reference = gradients(device, 1.0, half=False)
    forecast = ExponentHistogram.of(*reference)
    for weight in (2.0**-16, 2.0**-14):
        lost = lost_share(reference, gradients(device, weight, half=True))
        assert 0 < forecast.flushed_share(weight) < lost < 1
    assert lost > forecast.flushed_share(weight) + 0.2
    # Where nothing flushes, both say so.
    assert forecast.flushed_share(1.0) == lost_share(reference, gradients(device, 1.0, half=True)) == 0


def test_a_loss_scale_brings_the_lost_gradients_back(device):
    reference = gradients(device, 2.0**-14, half=False)
    assert lost_share(reference, gradients(device, 2.0**-14, half=True)) > 0.5
    assert lost_share(reference, gradients(device, 2.0**-14 * 2.0**16, half=True)) < 0.01


def test_zeros_of_dead_relus_are_not_lost(device):
    model = perceptron(device)
    with torch.no_grad():
        model[0].bias[:32] = -1e4  # half of the first layer never fires
    reference = [grad.clone() for grad in gradients(device, 1.0, half=False, model=model)]
    model.zero_grad()
    measured = gradients(device, 1.0, half=True, model=model)
    assert ExponentHistogram.of(*reference).shares().zero > 0.3
    assert ExponentHistogram.of(*measured).shares().zero > 0.3
    assert lost_share(reference, measured) < 0.001


def test_lost_share_by_hand():
    reference = [torch.tensor([1.0, 2.0, 0.0, -0.0]), torch.tensor(3.0)]
    assert lost_share(reference, [torch.tensor([1.0, 0.0, 0.0, 5.0]), torch.tensor(-0.0)]) == 2 / 3
    assert lost_share(iter(reference), iter(reference)) == 0
    assert lost_share([torch.zeros(3)], [torch.zeros(3)]) == 0
    assert lost_share([], []) == 0


def test_lost_share_of_gradients_that_do_not_pair():
    with pytest.raises(LessonError, match=r"equal shapes, not \(2,\) and \(3,\)"):
        lost_share([torch.ones(2)], [torch.ones(3)])
    with pytest.raises(LessonError, match="as many on both sides, not 1 and 2"):
        lost_share([torch.ones(2)], [torch.ones(2), torch.ones(2)])


def test_parameters_are_what_grad_holds_now(device):
    model = perceptron(device)
    recorder = GradientRecorder(model)
    assert recorder.parameters().total == 0
    held = gradients(device, 1.0, half=False, model=model)
    assert recorder.parameters() == ExponentHistogram.of(*held)
    assert recorder.parameters().total == sum(parameter.numel() for parameter in model.parameters())
    model[4].requires_grad_(False)
    model[4].weight.grad = model[4].bias.grad = None
    assert len(gradients_of(model)) == 4
    assert recorder.take_activations().total == 0  # they were not asked for


def test_activations_are_the_gradients_of_the_outputs_as_scaled(device):
    model = perceptron(device)
    recorder = GradientRecorder(model, activations=True)
    gradients(device, 1.0, half=False, model=model)
    plain = recorder.take_activations()
    assert plain.total == 256 * (64 + 64 + 64 + 64 + 8)  # an output each of five layers

    outputs = []
    handles = [layer.register_forward_hook(lambda _, inputs, output: outputs.append(output)) for layer in model]
    generator = torch.Generator().manual_seed(1)
    inputs, targets = (torch.randn(256, n, generator=generator).to(device) for n in (32, 8))
    loss = F.mse_loss(model(inputs), targets)
    assert plain == ExponentHistogram.of(*torch.autograd.grad(loss, outputs))
    for handle in handles:
        handle.remove()
    recorder.take_activations()

    gradients(device, 2.0**10, half=False, model=model)
    scaled = recorder.take_activations()
    assert scaled.binades() == {exponent + 10: count for exponent, count in plain.binades().items()}
    assert scaled.zeros == plain.zeros
    assert recorder.take_activations().total == 0  # taking starts a new count


def test_activations_under_autocast_are_counted_as_fp16(device):
    model = perceptron(device)
    recorder = GradientRecorder(model, activations=True)
    gradients(device, 2.0**-14, half=True, model=model)
    seen = recorder.take_activations()
    assert seen.total == 256 * 264
    assert seen.fp16_counts()["flushed"] == 0  # what fp16 lost is already zero
    assert seen.zeros > 0.5 * seen.total


def test_recording_changes_no_gradient_and_no_loss(device):
    plain = gradients(device, 2.0**3, half=True)
    model = perceptron(device)
    recorder = GradientRecorder(model, activations=True)
    watched = gradients(device, 2.0**3, half=True, model=model)
    recorder.parameters()
    assert all(torch.equal(one, other) for one, other in zip(plain, watched, strict=True))


def test_close_takes_the_hooks_off(device):
    model = perceptron(device)
    recorder = GradientRecorder(model, activations=True)
    assert all(layer._forward_hooks for layer in model)
    recorder.close()
    recorder.close()
    assert not any(module._forward_hooks for module in model.modules())
    gradients(device, 1.0, half=False, model=model)
    assert recorder.take_activations().total == 0


def test_a_forward_without_gradients_is_left_alone(device):
    model = perceptron(device)
    GradientRecorder(model, activations=True)
    with torch.no_grad():
        model(torch.zeros(1, 32, device=device))


def test_recording_reads_nothing_on_the_host():
    # Meta tensors have no values: any host read in the hooks raises.
    model = perceptron(torch.device("meta"))
    GradientRecorder(model, activations=True)
    model(torch.empty(4, 32, device="meta")).sum().backward()


@pytest.mark.cuda
def test_recording_does_not_synchronise():
    model = perceptron(torch.device("cuda"))
    recorder = GradientRecorder(model, activations=True)
    inputs = torch.randn(4, 32, device="cuda")
    model(inputs).sum().backward()  # handles and workspaces are made here
    torch.cuda.set_sync_debug_mode("error")
    try:
        model(inputs).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert recorder.take_activations().total == 2 * 4 * 264


def test_layers_that_return_tuples_are_counted_and_those_that_hand_on_their_input_are_not():
    class Pair(nn.Module):
        def forward(self, x):
            return x * 2, x * 3

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.same, self.pair = nn.Linear(4, 8), nn.Identity(), Pair()

        def forward(self, x):
            first, second = self.pair(self.same(self.linear(x)))
            return (first + second).sum()

    model = Model()
    recorder = GradientRecorder(model, activations=True)
    model(torch.randn(5, 4)).backward()
    assert recorder.take_activations().total == 3 * 5 * 8  # the linear layer's output once, and the pair
    recorder.close()
