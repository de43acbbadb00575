"""The claims in the feedback of lesson 2's quick checks, each run on PyTorch; names give the question and the answer."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

TIE = torch.tensor(2.0**-25)


def positive_fp16_numbers():
    return torch.arange(1, 0x7C00, dtype=torch.int16).view(torch.float16).double()


def network():
    """A layer with a dead unit, below weights of 2^-6 that shrink what comes back to it."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.5)
        model[0].bias[0] = -100.0
        model[2].weight.fill_(2.0**-6)
    return model


def run(weight, half=True):
    """The network after one backward pass; all targets are 1 above what comes out."""
    model, inputs = network(), torch.ones(16, 2)
    with torch.autocast("cpu", dtype=torch.float16, enabled=half):
        loss = weight * F.mse_loss(model(inputs), network()(inputs).detach() + 1.0)
    loss.backward()
    return model


def gradients(weight, half=True):
    return torch.cat([parameter.grad.flatten() for parameter in run(weight, half).parameters()])


# -- 2-floor --------------------------------------------------------------------------------------------------------


def test_2_floor_a_the_smallest_positive_number_is_2_to_the_minus_24():
    assert positive_fp16_numbers().min() == 2.0**-24
    assert TIE.half().item() != 2.0**-25


def test_2_floor_b_the_next_float32_value_goes_up_and_the_tie_does_not():
    above = torch.nextafter(TIE, torch.tensor(1.0))
    assert above > TIE and above.half().item() == 2.0**-24
    assert TIE.half().item() != 2.0**-24


def test_2_floor_c_half_way_and_the_tie_goes_to_the_even_one():
    numbers = torch.cat([torch.zeros(1).double(), positive_fp16_numbers()])[:3]
    ties = (numbers[1:] + numbers[:-1]) / 2
    assert ties[0] == TIE
    # Codes 0, 1 and 2: the tie between 0 and 1 goes down, the one between 1 and 2 goes up, both to an even code.
    assert ties.float().half().view(torch.int16).tolist() == [0, 2]


def test_2_floor_d_underflow_is_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lost = run(2.0**-18)[0].weight.grad
    assert not lost.any() and gradients(2.0**-18, half=False)[:4].any()


# -- 2-zeros --------------------------------------------------------------------------------------------------------


def test_2_zeros_a_zeros_of_units_that_are_off_are_in_float32_too():
    exact, fp16 = gradients(1.0, half=False), gradients(1.0)
    assert torch.equal(exact == 0, fp16 == 0) and (fp16 == 0).sum() == 4  # two weights and a bias in, one weight out


def test_2_zeros_b_the_box_is_float32_and_the_value_is_not():
    exact, fp16 = gradients(1 / 3, half=False), gradients(1 / 3)
    assert fp16.dtype == exact.dtype == torch.float32
    assert torch.equal(fp16.half().float(), fp16) and not torch.equal(exact.half().float(), exact)


def test_2_zeros_c_the_share_of_zeros_does_not_tell_and_the_pair_does():
    # Alike in fp16: three zeros each, one after a dead unit and one after flushing.
    dead, flushed = torch.tensor([0.0, 0.0, 0.0, 1.0]), torch.tensor([1e-9, -1e-9, 1e-12, 1.0])
    assert torch.equal(dead.half() == 0, flushed.half() == 0)
    lost = [int(((exact != 0) & (exact.half() == 0)).sum()) for exact in (dead, flushed)]
    assert lost == [0, 3]
    # And in a network: of seven zeros, four were zero before.
    exact, fp16 = gradients(2.0**-18, half=False), gradients(2.0**-18)
    assert (int((fp16 == 0).sum()), int(((exact != 0) & (fp16 == 0)).sum())) == (7, 3)


# -- 2-remedy -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam], ids=lambda kind: kind.__name__)
def test_2_remedy_a_a_larger_learning_rate_multiplies_zeros(kind):
    for rate in (0.1, 1e6):
        model = run(2.0**-30)
        assert not any(parameter.grad.any() for parameter in model.parameters())
        before = nn.utils.parameters_to_vector(model.parameters()).clone()
        kind(model.parameters(), lr=rate).step()
        assert torch.equal(nn.utils.parameters_to_vector(model.parameters()), before)


def test_2_remedy_b_all_gradients_grow_by_the_same_factor_and_clear_the_floor():
    weight, factor = 2.0**-30, 2.0**20
    exact = gradients(weight, half=False)
    assert torch.equal(gradients(weight * factor, half=False), factor * exact)
    assert not gradients(weight).any()
    assert torch.equal(gradients(weight * factor) == 0, exact == 0)
    assert torch.allclose(gradients(weight * factor) / factor, exact, rtol=0.01, atol=0.0)


def test_2_remedy_c_grad_is_float32_already_and_the_value_was_lost_before():
    passed = []
    model, inputs = network(), torch.ones(16, 2)
    with torch.autocast("cpu", dtype=torch.float16):
        outputs = model(inputs)
        outputs.register_hook(passed.append)
        loss = 2.0**-30 * F.mse_loss(outputs, outputs.detach().float() + 1.0)
    loss.backward()
    (lost,) = passed
    assert lost.dtype == torch.float16 and not lost.any()
    assert model[2].weight.grad.dtype == torch.float32 and not model[2].weight.grad.float().any()
    assert run(2.0**-30, half=False)[2].weight.grad.any()
