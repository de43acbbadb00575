import math

import pytest
import torch
from torch import nn

from amp_lessons.errors import LessonError
from amp_lessons.problems import CoordinateNetwork, millimetres, portrait


@pytest.fixture(scope="module")
def picture():
    return portrait(32)


class Constant(nn.Module):
    """A model that answers the same everywhere."""

    def __init__(self, *answer: float) -> None:
        super().__init__()
        self.answer = nn.Parameter(torch.tensor(answer))

    def forward(self, positions: torch.Tensor) -> torch.Tensor:
        return self.answer.expand(len(positions), -1)


class Perfect(Constant):
    """A model that knows the answers, plus an offset."""

    def __init__(self, problem, offset: float = 0.0) -> None:
        super().__init__(offset)
        self.problem = problem

    def forward(self, positions: torch.Tensor) -> torch.Tensor:
        item = (positions[:, None] == self.problem.inputs).all(-1).int().argmax(1)
        return self.problem.targets[item] + self.answer


def test_portrait_is_a_photograph(picture):
    assert picture.inputs.shape == (1024, 2) and picture.targets.shape == (1024, 3)
    assert picture.targets.dtype == picture.inputs.dtype == torch.float32
    assert 0 <= picture.targets.min() < 0.2 and 0.8 < picture.targets.max() <= 1
    assert torch.equal(picture.picture(), picture.targets.reshape(32, 32, 3))
    assert portrait().targets.shape == (64 * 64, 3)
    assert portrait(8, loss_weight=0.25).loss_weight == 0.25


def test_portrait_stands_upright(picture):
    # Row first: the photograph has a dark uniform at the bottom and a lighter background at the top corners.
    shown = picture.picture().mean(2)
    assert torch.equal(picture.inputs[1] - picture.inputs[0], torch.tensor([0.0, 1 / 32]))  # the column moves fastest
    assert torch.equal(picture.inputs[32] - picture.inputs[0], torch.tensor([1 / 32, 0.0]))
    assert shown[-8:].mean() < shown[:8].mean()


def test_millimetres_are_metres_of_a_relief_ten_millimetres_high():
    problem = millimetres()
    assert problem.targets.shape == (4096, 1)
    assert problem.targets.mean().abs() < 1e-6
    assert problem.targets.std().item() == pytest.approx(0.01)
    assert problem.loss_weight == 1  # nothing about the loss is unusual


def test_batches_pair_inputs_with_their_targets(tiny, device):
    problem = tiny.to(device)
    inputs, targets = problem.batch(torch.Generator().manual_seed(5))
    assert inputs.shape == (64, 2) and targets.shape == (64, 1)
    assert inputs.device.type == targets.device.type == device.type
    rows = ((inputs[:, None] == problem.inputs).all(2)).int().argmax(1)
    assert torch.equal(problem.targets[rows], targets)
    again = problem.batch(torch.Generator().manual_seed(5))
    other = problem.batch(torch.Generator().manual_seed(6))
    assert torch.equal(again[0], inputs) and not torch.equal(other[0], inputs)


def test_loss_is_the_weighted_mean_square(picture):
    batch = (picture.inputs[:4], torch.zeros(4, 3))
    model = Constant(1.0, 2.0, 3.0)
    assert picture.loss(model, batch).item() == pytest.approx((1 + 4 + 9) / 3)
    assert portrait(8, loss_weight=2.0**-10).loss(model, batch).item() == pytest.approx((1 + 4 + 9) / 3 / 1024)


def test_relative_error_of_the_mean_is_one(tiny):
    assert tiny.relative_error(Constant(tiny.targets.mean().item())) == pytest.approx(1)
    assert tiny.relative_error(Perfect(tiny)) == 0


def test_predictions_in_batches_are_those_of_all_items_at_once():
    problem = portrait(33)  # 1089 items: a whole batch of 1024 and a part of one
    model = problem.make_model()
    with torch.no_grad():
        assert torch.allclose(problem.predict(model), model(problem.inputs), atol=1e-6)


def test_psnr(picture):
    # An error of 0.1 on values in [0, 1] is 20 dB by definition; clipping to [0, 1] can only help.
    assert picture.psnr(Perfect(picture)) == math.inf
    error = (picture.targets.add(0.1).clamp(0, 1) - picture.targets).square().mean()
    assert picture.psnr(Perfect(picture, 0.1)) == pytest.approx(-10 * math.log10(error), abs=1e-4)
    assert picture.psnr(Perfect(picture, 0.1)) >= 20
    assert math.isnan(picture.psnr(Constant(math.nan, 0.0, 0.0)))
    assert picture.psnr(Constant(math.inf, math.inf, math.inf)) == picture.psnr(Constant(1.0, 1.0, 1.0))


def test_pictures_are_clipped(picture):
    shown = picture.picture(Constant(-1.0, 0.5, 2.0))
    assert shown.shape == (32, 32, 3)
    assert shown[0, 0].tolist() == [0.0, 0.5, 1.0]


def test_autocast_does_not_touch_the_angles(device):
    torch.manual_seed(0)
    network = CoordinateNetwork(outputs=3).to(device)
    positions = torch.rand(7, 2, device=device)
    seen = []
    network.hidden[0].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    plain = network(positions)
    with torch.autocast(device.type, dtype=torch.float16):
        half = network(positions)
    assert plain.shape == (7, 3) and half.dtype == torch.float16
    assert seen[1].dtype == torch.float32 and torch.equal(seen[0], seen[1])


def test_fourier_features_move_with_the_model_and_are_not_trained():
    network = CoordinateNetwork(outputs=1)
    assert "frequencies" in network.state_dict()
    assert "frequencies" not in dict(network.named_parameters())
    assert max(width for parameter in network.parameters() for width in parameter.shape) <= 128  # fp16 on an old CPU


@pytest.mark.parametrize("problem", [portrait, millimetres])
def test_picture_without_pixels_is_a_sentence(problem):
    with pytest.raises(LessonError, match="size is 0; a picture needs"):
        problem(0)
