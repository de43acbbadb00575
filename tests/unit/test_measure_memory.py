"""Memory of a step: bytes computed by hand for small models, whose every saved tensor is known."""

import pytest
import torch
from torch import nn

from amp_lessons.measure.memory import SavedBytes, memory_split, saved_for_backward
from amp_lessons.measure.settings import SETTINGS
from amp_lessons.measure.steps import TrainingStep
from amp_lessons.measure.workloads import mlp, transformer

BY_NAME = {setting.name: setting for setting in SETTINGS}
CPU = torch.device("cpu")


def saved(dtype: torch.dtype | None) -> SavedBytes:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    inputs = torch.randn(32, 8)

    def forward():
        with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            return model(inputs)

    return saved_for_backward(forward, model, [inputs])


def test_float32_keeps_the_hidden_layer_once_and_points_to_weights_and_batch():
    # The hidden layer [32, 16] is saved by ReLU and by the second layer, in one storage. The second layer needs its weight
    # [4, 16]; the first does not, since nobody asks for the gradient of the batch [32, 8].
    assert saved(None) == SavedBytes(
        activations_bytes=32 * 16 * 4, weight_copies_bytes=0, weights_bytes=4 * 16 * 4, batch_bytes=32 * 8 * 4
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_halves_the_activations_and_adds_copies_of_batch_and_weight(dtype):
    assert saved(dtype) == SavedBytes(
        activations_bytes=32 * 16 * 2 + 32 * 8 * 2, weight_copies_bytes=4 * 16 * 2, weights_bytes=0, batch_bytes=0
    )


def test_a_view_keeps_the_whole_storage_alive_and_counts_as_such():
    model = nn.Linear(8, 16)
    inputs = torch.randn(32, 8)
    # square() saves four columns of the answer, and with them all sixteen.
    kept = saved_for_backward(lambda: model(inputs)[:, :4].square().sum(), model, [inputs])
    assert kept.activations_bytes == 32 * 16 * 4


@pytest.mark.parametrize("name", ["fp32", "fp16", "amp", "bf16"])
def test_split_of_an_mlp_by_hand(name):
    width, batch, layers = 64, 32, 3
    split = memory_split(mlp(width, batch, layers), BY_NAME[name], CPU)
    parameters = layers * (width * width + width)
    assert split.weights_bytes == 4 * parameters  # float32 under every recipe
    assert split.gradients_bytes == 4 * parameters
    # Adam: two averages as large as the weights, and one float32 step count for each of six tensors.
    assert split.optimizer_bytes == 2 * 4 * parameters + 4 * 2 * layers
    assert split.batch_bytes == 2 * batch * width * 4
    # Two hidden layers, the answer in float32 for the loss; under autocast half of that, and the batch in 16 bits.
    plane = batch * width
    half = name != "fp32"
    assert split.activations_bytes == (2 * 2 * plane + 4 * plane + 2 * plane if half else 2 * 4 * plane + 4 * plane)
    assert split.weight_copies_bytes == (2 * 2 * width * width if half else 0)  # all but the first layer's
    assert split.peak_bytes is None
    assert split.sum_bytes == (
        split.weights_bytes + split.weight_copies_bytes + split.gradients_bytes + split.optimizer_bytes + split.activations_bytes
    )


def test_mixed_precision_takes_more_memory_for_a_small_batch_and_less_for_a_large_one_but_not_half():
    def share(batch: int) -> float:
        fp32, amp = (memory_split(mlp(64, batch), BY_NAME[name], CPU).sum_bytes for name in ("fp32", "amp"))
        return amp / fp32

    assert share(1) > 1
    assert 0.5 < share(2048) < 1


@pytest.mark.parametrize("name", ["fp16", "amp", "bf16"])
def test_weights_and_gradients_stay_float32_under_autocast(name):
    step = TrainingStep(transformer(32, 2), BY_NAME[name], CPU)
    seen = []
    step(on_gradients=lambda: seen.extend(p.grad.dtype for p in step.model.parameters()))
    assert {p.dtype for p in step.model.parameters()} == set(seen) == {torch.float32}


def test_gradients_are_those_of_a_step_without_the_counting():
    # Counting must not change what it counts.
    def gradients(counted: bool) -> list[torch.Tensor]:
        step = TrainingStep(mlp(16, 8), BY_NAME["amp"], CPU)
        found = []

        def loss():
            if not counted:
                return step.loss()
            kept = []
            saved_for_backward(lambda: kept.append(step.loss()), step.model, step.batch)
            return kept[0]

        step(loss, lambda: found.extend(p.grad.clone() for p in step.model.parameters()))
        return found

    assert all(map(torch.equal, gradients(True), gradients(False)))


@pytest.mark.cuda
def test_peak_on_cuda_holds_what_is_there_at_once():
    split = memory_split(mlp(256, 1024), BY_NAME["fp32"], "cuda")
    always = split.weights_bytes + split.optimizer_bytes + split.batch_bytes
    assert split.peak_bytes >= always + max(split.gradients_bytes, split.activations_bytes)
