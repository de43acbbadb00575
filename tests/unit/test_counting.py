"""The quick ways of counting give what a slow, obvious one gives: each value's key from ``math.frexp``."""

import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from amp_lessons import counting
from amp_lessons.counting import INFINITY_KEY, KEYS, count_into, counts_of, key_of_power


def counted(*tensors: torch.Tensor) -> torch.Tensor:
    return counts_of(tensors)


def slow_key(value: float) -> int:
    if math.isnan(value):
        return KEYS - 1
    if math.isinf(value):
        return INFINITY_KEY
    if value == 0:
        return 0
    half, exponent = math.frexp(abs(value))  # exact: a double holds every float32
    exponent -= 1
    if exponent < -126:  # float32's subnormals are one binade, whose steps do not get finer
        return key_of_power(-127) + (2 if abs(value) * 2.0**126 >= 1 - 2 / 4096 else 1)
    return key_of_power(exponent) + (0 if half == 0.5 else 2 if half >= 1 - 1 / 4096 else 1)


def slowly(values: torch.Tensor) -> torch.Tensor:
    table = torch.zeros(KEYS, dtype=torch.int64)
    for key, number in Counter(slow_key(value) for value in values.detach().double().flatten().tolist()).items():
        table[key] = number
    return table


def nan_together(table: torch.Tensor) -> torch.Tensor:
    """NaN has two keys, by its payload, which nobody tells apart."""
    table = table.clone()
    table[-1] += table[-2]
    table[-2] = 0
    return table


def from_bits(bits: torch.Tensor) -> torch.Tensor:
    return bits.to(torch.int32).view(torch.float32)


def random_bits(count: int, seed: int = 0) -> torch.Tensor:
    return from_bits(torch.randint(-(2**31), 2**31, (count,), generator=torch.Generator().manual_seed(seed)))


def gradients(count: int, seed: int = 0) -> torch.Tensor:
    """Like a layer's: within some twenty binades under 1, a fortieth of them zero, of either sign."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(count, generator=generator) * torch.exp2(torch.randint(-20, -5, (count,), generator=generator))
    return values * (torch.rand(count, generator=generator) > 0.025)


def borders() -> torch.Tensor:
    """Every power of two of float32, every last 1/4096 under it, and the neighbours of both, of either sign."""
    exponents = torch.arange(256)[:, None] << 23
    mantissas = torch.tensor([0, 1, 2, 0x7FEFFF, 0x7FF000, 0x7FF001, 0x7FFFFF])
    bits = (exponents + mantissas).flatten()
    return from_bits(torch.cat([bits, bits - 2**31]))


CASES = {
    "random bits": random_bits(4_000),
    "random bits without NaN": random_bits(4_000).nan_to_num(1.0),
    "borders": borders(),
    "borders of finite values": borders()[borders().isfinite()],
    "gradients": gradients(4_000),
    "gradients with a few borders": torch.cat([gradients(4_000), borders()[borders().isfinite()][::9]]),
    "gradients in fp16's steps": gradients(4_000).half().float(),
    "gradients in fp16's subnormals": (gradients(4_000) * 2.0**-12).half().float(),
    "one NaN among gradients": torch.cat([gradients(2_000), torch.tensor([float("nan")]), gradients(2_000)]),
    "one infinity among gradients": torch.cat([gradients(2_000), torch.tensor([-float("inf")]), gradients(2_000)]),
    "float32's subnormals": from_bits(torch.randint(-(2**23), 2**23, (4_000,))),
    "dead ReLUs": gradients(4_000) * (torch.arange(4_000) % 1000 < 100),
    "zeros": torch.zeros(4_000) * torch.tensor([1.0, -1.0]).repeat(2_000),
    "ones": torch.ones(4_000),
    "large": gradients(4_001) * 2.0**30,
    "small": gradients(4_000) * 2.0**-90,
    "from just above 2^-86 to 2^40": torch.tensor([2.0**-86 + 2.0**-109, 2.0**-85, 3.0, 2.0**40, 0.0, -(2.0**40)] * 50),
    "2^-86": torch.tensor([2.0**-86] + [3.0] * 400),
    "just above 2^40": torch.tensor([2.0**40 + 2.0**17] + [3.0] * 400),
    "one of float32's subnormals": torch.tensor([-(2.0**-149)] + [3.0, 0.0] * 400),
    "fewer than eight": torch.tensor([0.0, 1.0, 3.0]),
    "empty": torch.empty(0),
}
case = pytest.mark.parametrize("values", CASES.values(), ids=CASES.keys())


def test_the_slow_key_by_hand():
    picked = [0.0, -0.0, 1.0, 1.5, 2 * (1 - 2.0**-12), 2.0, -2.0**-126, 2.0**-127, 2.0**-126 * (1 - 2.0**-12), float("inf")]
    assert [slow_key(value) for value in picked] == [0, 0, 381, 382, 383, 384, 3, 1, 2, 765]
    assert key_of_power(0) == 381


@case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_every_value_has_its_own_key(values, dtype):
    values = values.to(dtype)
    assert torch.equal(nan_together(counted(values)), nan_together(slowly(values)))


@case
def test_the_way_without_a_wait_counts_the_same(values):
    # CUDA's way, on the CPU; it reads nothing on the host (test_histograms).
    table = torch.zeros(KEYS, dtype=torch.int64)
    counting._count_without_wait(table, values)
    assert torch.equal(table, counted(values))


@pytest.mark.parametrize("chunk, batch, small", [(8, 16, 1), (64, 64, 64), (1000, 4096, 10**6), (1024, 10_000, 16)])
def test_every_way_of_cutting_gives_the_same(monkeypatch, chunk, batch, small):
    tensors = [gradients(n, seed=n) for n in (0, 1, 7, 8, 9, 63, 64, 65, 1000, 5001)] + [borders(), random_bits(500)]
    whole = counted(*tensors)
    assert int(whole.sum()) == sum(map(len, tensors))
    for name, value in {"_CHUNK": chunk, "_BATCH": batch, "_SMALL": small, "_idle": []}.items():
        monkeypatch.setattr(counting, name, value)
    assert torch.equal(counted(*tensors), whole)


def test_more_values_than_a_batch():
    values = gradients(counting._BATCH // 2 + 12_345)
    assert torch.equal(counted(values, values, values), 3 * counted(values))


def test_what_is_counted_is_left_alone_and_added():
    values = borders()
    before = values.view(torch.int32).clone()
    table = torch.full((KEYS,), 5)
    count_into(table, values.requires_grad_())
    assert torch.equal(values.detach().view(torch.int32), before)
    assert torch.equal(table - 5, counted(values))


def test_strides():
    values = gradients(60_000).reshape(200, 300)
    assert torch.equal(counted(values.t()), counted(values))
    assert torch.equal(counted(values[::3, 1::7]), counted(values[::3, 1::7].clone()))
    assert counted(values[:1].expand(500, 300)).sum() == 150_000


def test_threads_do_not_disturb_each_other():
    tensors = [gradients(150_000, seed) for seed in range(8)]
    alone = [counted(values) for values in tensors]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(counted, tensors * 8))
    assert all(torch.equal(one, other) for one, other in zip(alone * 8, together, strict=True))


def test_counting_inside_counting(monkeypatch):
    # A hook, a signal or the garbage collector can start another count at any moment, here between two chunks of this one.
    outer, inner, inside, look = gradients(100_000, 1), gradients(100_000, 2), [], counting._look
    alone = [counted(outer), counted(inner)]

    def interrupted(*arguments):
        found = look(*arguments)
        if not inside:
            monkeypatch.setattr(counting, "_look", look)
            inside.append(counted(inner))
        return found

    monkeypatch.setattr(counting, "_look", interrupted)
    assert torch.equal(counted(outer), alone[0]) and torch.equal(inside[0], alone[1])
