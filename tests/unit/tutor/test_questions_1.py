"""The claims in the feedback of lesson 1's quick checks, each run on PyTorch; names give the question and the answer."""

import math

import pytest
import torch
from torch import nn


def significant_bits(dtype):
    return 1 - round(math.log2(torch.finfo(dtype).eps))


def exponent_bits(dtype):
    """How many bits of the code the powers of two differ in, from the smallest normal number to the largest."""
    whole = {2: torch.int16, 4: torch.int32}[dtype.itemsize]
    smallest, largest = (math.floor(math.log2(limit)) for limit in (torch.finfo(dtype).tiny, torch.finfo(dtype).max))
    codes = [torch.tensor(2.0**power, dtype=dtype).view(whole).item() for power in range(smallest, largest + 1)]
    changing = 0
    for code in codes:
        changing |= code ^ codes[0]
    return changing.bit_count()


@pytest.fixture
def step():
    """A step with Adam under autocast: the model, its optimizer, its inputs and what was kept for backward, by address."""
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(model.parameters())
    inputs, kept = torch.randn(64, 16, requires_grad=True), {}

    def note(tensor):
        kept[tensor.data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor), torch.autocast("cpu", dtype=torch.float16):
        outputs = model(inputs)
    outputs.float().square().mean().backward()
    optimizer.step()
    return model, optimizer, inputs, kept


def test_1_bf16_a_fp16_has_11_significant_bits_and_bf16_has_8():
    assert (significant_bits(torch.float16), significant_bits(torch.bfloat16)) == (11, 8)
    # The numbers themselves: 2^11 and 2^8 are the first after which a whole number is missing.
    for dtype, bits in ((torch.float16, 11), (torch.bfloat16, 8)):
        numbers = torch.arange(2**bits + 2, dtype=torch.float32)
        assert (numbers.to(dtype).float() != numbers).nonzero().tolist() == [[2**bits + 1]]


def test_1_bf16_b_float32s_8_exponent_bits_and_range():
    assert [exponent_bits(dtype) for dtype in (torch.float32, torch.bfloat16, torch.float16)] == [8, 8, 5]
    wide, bf16, fp16 = (torch.finfo(dtype) for dtype in (torch.float32, torch.bfloat16, torch.float16))
    assert bf16.tiny == wide.tiny and wide.max / 2 < bf16.max < wide.max
    # Down and up: fp16 loses both of these, bf16 neither.
    ends = torch.tensor([1e-30, 1e30])
    assert ends.half().tolist() == [0.0, math.inf] and fp16.max < 1e30
    assert torch.allclose(ends.bfloat16().float(), ends, rtol=2.0**-8)


def test_1_bf16_c_both_take_two_bytes():
    assert torch.zeros(10).half().nbytes == torch.zeros(10).bfloat16().nbytes == 20


def test_1_memory_a_weights_stay_float32_and_a_16_bit_copy_comes_on_top(step):
    model, _, _, kept = step
    for layer in (model[0], model[2]):
        weight = layer.weight
        assert weight.dtype == torch.float32 and weight.data_ptr() not in kept
        # Saved transposed; before the step's update the copy was the weight, rounded.
        copies = [t for t in kept.values() if t.dtype == torch.float16 and {*t.shape} == {*weight.shape} and len(t) != 64]
        assert len(copies) == 1 and copies[0].nbytes * 2 == weight.nbytes


def test_1_memory_a_small_updates_would_vanish_in_fp16():
    weight, update = torch.tensor(1.0), torch.tensor(1e-4)
    assert weight.half() + update.half() == weight.half() and weight + update != weight


def test_1_memory_b_adams_two_averages_stay_float32(step):
    model, optimizer, _, _ = step
    for weight in model.parameters():
        averages = [t for t in optimizer.state[weight].values() if t.shape == weight.shape]
        assert len(averages) == 2 and all(t.dtype == torch.float32 == weight.dtype for t in averages)


def test_1_memory_c_activations_are_outputs_of_16_bit_operations(step):
    *_, kept = step
    activations = [t for t in kept.values() if len(t) == 64]
    # The inputs' 16-bit copy, and the first layer's output after the ReLU, which the second layer keeps as well.
    assert sorted(t.shape[1] for t in activations) == [16, 32]
    assert all(t.dtype == torch.float16 for t in activations)


def test_1_products_question_sticks_at_2048():
    total, one = torch.tensor(0.0).half(), torch.tensor(1.0).half()
    for _ in range(3000):
        total = total + one
    assert total == 2048


def test_1_products_a_the_result_has_fp16s_digits_too():
    # 4097 needs a digit more than fp16 has: the sum got there, and was rounded once.
    ones = torch.ones(4097).half()
    result = torch.dot(ones, ones)
    assert result.dtype == torch.float16 and result == torch.tensor(4097.0).half() == 4096


def test_1_products_b_only_inputs_and_result_are_16_bit():
    # On its way the sum is 131072, and 131072 + 1, which fp16 has no room and no digits for.
    row = torch.tensor([[256.0, 256.0, 1.0, 256.0, 256.0]]).half()
    column = torch.tensor([[256.0], [256.0], [1.0], [-256.0], [-256.0]]).half()
    result = row @ column
    assert row.dtype == column.dtype == result.dtype == torch.float16 and result == 1


def test_1_products_c_4096_columns_add_4096_terms():
    result = torch.ones(2, 4096).half() @ torch.ones(4096, 2).half()
    assert result.shape == (2, 2) and (result == 4096).all()
