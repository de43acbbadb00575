"""Every count is held against a slow, obvious one: ``frexp`` in Python, or PyTorch's own ``.half()``."""

import json
import math
from collections import Counter

import pytest
import torch

from amp_lessons.counting import KEYS, count_into
from amp_lessons.errors import LessonError
from amp_lessons.formats import FP16, Fate
from amp_lessons.histograms import ExponentHistogram, LossScaleWindow

FATES = ("zero", "flushed", "subnormal", "normal", "overflow", "nonfinite")
SMALLEST_KEPT = 2.980232594040899e-08  # the next float32 above 2^-25


def from_bits(*bits: int) -> torch.Tensor:
    return torch.tensor([bit - 2**32 if bit >= 2**31 else bit for bit in bits], dtype=torch.int32).view(torch.float32)


def random_float32(count: int = 50_000, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-(2**31), 2**31, (count,), generator=generator).to(torch.int32).view(torch.float32)


def special_values() -> torch.Tensor:
    """Zeros, infinities, NaN of several payloads, float32's ends, and fp16's three borders with their neighbours."""
    nan = from_bits(0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFC00000, 0xFFFFFFFF, 0x7FBFF000, 0x7FFFF000)
    positive = [2.0**-149, 1e-45, 1e-40, 2.0**-127, 2.0**-126, 2.0**-25, 2.0**-24, 2.0**-14, 1.0, 65504.0, 65520.0, 65536.0]
    positive += [2.0**127, torch.finfo(torch.float32).max, math.inf, 0.0]
    edges = torch.tensor(positive)
    infinity = torch.tensor(math.inf)
    edges = torch.cat([edges, edges.nextafter(infinity), edges.nextafter(-infinity)])
    return torch.cat([edges, -edges, nan])


def slow_binades(values: torch.Tensor) -> Counter:
    numbers = [value for value in values.double().tolist() if value != 0 and math.isfinite(value)]
    return Counter(max(math.frexp(abs(number))[1] - 1, -127) for number in numbers)


def slow_fp16_counts(values: torch.Tensor, scale: float = 1.0) -> dict[str, int]:
    """Multiply in float32, store with ``.half()`` and look. (An overflow of float32 is one of fp16 too.)"""
    scaled = values.float() * scale
    stored = scaled.half()
    finite, zero = values.isfinite(), values == 0
    flushed = finite & ~zero & (stored == 0)
    overflow = finite & stored.isinf()
    subnormal = finite & ~zero & ~flushed & (scaled.abs() < 2.0**-14)
    counts = {"zero": zero, "flushed": flushed, "subnormal": subnormal, "overflow": overflow, "nonfinite": ~finite}
    counts = {fate: int(mask.sum()) for fate, mask in counts.items()}
    return counts | {"normal": values.numel() - sum(counts.values())}


@pytest.fixture(params=["random bits", "special", "gradients"])
def values(request, device) -> torch.Tensor:
    if request.param == "gradients":
        generator = torch.Generator().manual_seed(3)
        made = torch.randn(50_000, generator=generator) * torch.exp2(torch.randint(-40, 20, (50_000,), generator=generator))
    else:
        made = {"random bits": random_float32, "special": special_values}[request.param]()
    return made.to(device)


def test_every_value_is_counted_once(values):
    histogram = ExponentHistogram.of(values)
    assert histogram.total == values.numel()
    assert histogram.zeros == int((values == 0).sum())
    assert histogram.infinities == int(values.isinf().sum())
    assert histogram.nans == int(values.isnan().sum())
    parts = histogram.zeros + histogram.infinities + histogram.nans + histogram.nonzero_finite
    assert parts == histogram.total == sum(histogram.fp16_counts(2.0**7).values())


def test_binades_are_those_of_frexp(values):
    binades = ExponentHistogram.of(values).binades()
    assert Counter({e: n for e, n in binades.items() if n}) == slow_binades(values)
    assert list(binades) == list(range(min(binades), max(binades) + 1))  # no gaps, in order


# Up to 2^101 even float32's own subnormals are told apart; GradScaler's default is 2^16.
@pytest.mark.parametrize("k", [0, 1, -1, 7, 16, 24, -24, 50, -50, 101, -101, -126])
def test_fp16_counts_are_those_of_half(values, k):
    assert ExponentHistogram.of(values).fp16_counts(2.0**k) == slow_fp16_counts(values, 2.0**k)


@pytest.mark.parametrize("k", [102, 112, 120, 127])
def test_at_absurd_scales_only_float32_subnormals_are_uncertain(values, k):
    values = values[~((values != 0) & (values.abs() < 2.0**-126))]
    assert ExponentHistogram.of(values).fp16_counts(2.0**k) == slow_fp16_counts(values, 2.0**k)


@pytest.mark.parametrize("k", range(-20, 41))
def test_the_three_borders_at_every_scale(k):
    scale = 2.0**k
    down, up = torch.tensor(0.0), torch.tensor(math.inf)
    for border in (2.0**-25, 2.0**-14, 65520.0):
        edge = torch.tensor(border) / scale
        for value in (edge.nextafter(down), edge, edge.nextafter(up)):
            counts = ExponentHistogram.of(value).fp16_counts(scale)
            assert counts == slow_fp16_counts(value[None], scale)
            assert counts[FP16.fate(value, scale).value] == 1


def test_fates_of_hand_picked_values():
    picked = [-0.0, 0.0, 2.0**-25, -(2.0**-25), SMALLEST_KEPT, 2.0**-14, 65519.99609375, -65520.0, math.inf, -math.nan]
    counts = ExponentHistogram.of(torch.tensor(picked)).fp16_counts()
    assert counts == dict(zip(FATES, (2, 2, 1, 2, 1, 2)))
    assert set(FATES) == {"nonfinite" if fate is Fate.NONFINITE else fate.value for fate in Fate}


def test_every_fp16_code(device):
    stored = torch.arange(2**16).to(torch.int16).view(torch.float16).to(device)
    histogram = ExponentHistogram.of(stored)
    assert histogram.nonzero_finite == 63488 - 2
    assert (histogram.zeros, histogram.infinities, histogram.nans) == (2, 2, 2046)
    assert histogram.fp16_counts() == dict(zip(FATES, (2, 0, 2046, 63488 - 2048, 0, 2048)))


def test_bf16_and_float32_of_the_same_numbers_give_the_same(device):
    stored = torch.arange(2**16).to(torch.int16).view(torch.bfloat16).to(device)
    histogram = ExponentHistogram.of(stored)
    assert histogram.total == 2**16
    assert histogram == ExponentHistogram.of(stored.float())
    assert histogram.fp16_counts() == slow_fp16_counts(stored)


def test_shapes_and_strides(device):
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(0)).to(device)
    whole = ExponentHistogram.of(x)
    assert ExponentHistogram.of(x.t()) == ExponentHistogram.of(x.reshape(2, 3, 8)) == whole
    assert ExponentHistogram.of(x[::2, 1::3]) == ExponentHistogram.of(x[::2, 1::3].clone())
    assert ExponentHistogram.of(*x.flatten().unbind()) == whole  # 0-dimensional tensors
    assert ExponentHistogram.of(x[:1].expand(5, 8)).total == 40
    assert ExponentHistogram.of(x[:2], x[2:]) == ExponentHistogram.of(x[:2]) + ExponentHistogram.of(x[2:]) == whole
    assert ExponentHistogram.of(x.clone().requires_grad_()) == whole


def test_values_are_left_alone():
    x = special_values()
    before = x.view(torch.int32).clone()
    ExponentHistogram.of(x)
    assert torch.equal(x.view(torch.int32), before)


@pytest.mark.parametrize("tensors", [(), (torch.empty(0),), (torch.empty(3, 0), torch.empty(0, dtype=torch.float16))])
def test_empty(tensors):
    histogram = ExponentHistogram.of(*tensors)
    assert histogram.total == 0
    assert histogram.binades() == {}
    assert histogram.fp16_counts() == dict.fromkeys(FATES, 0)
    assert histogram.flushed_share() == histogram.overflowed_share() == histogram.shares().zero == 0
    assert histogram.window() == LossScaleWindow(None, None)


def test_counting_reads_nothing_on_the_host():
    # A meta tensor has no values: any host read, data-dependent shape or boolean index raises.
    table = torch.zeros(KEYS, dtype=torch.int64, device="meta")
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        count_into(table, torch.empty(3, 5, dtype=dtype, device="meta"))


@pytest.mark.cuda
def test_counting_does_not_synchronise():
    table = torch.zeros(KEYS, dtype=torch.int64, device="cuda")
    tensors = [torch.randn(1000, device="cuda") for _ in range(3)]
    torch.cuda.set_sync_debug_mode("error")
    try:
        for tensor in tensors:
            count_into(table, tensor)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert int(table.sum()) == 3000


def test_shares_add_up_and_zeros_are_not_underflow():
    histogram = ExponentHistogram.of(torch.tensor([0.0] * 6 + [1e-9, 1e-6, 1.0, 1e6]))
    shares = histogram.shares()
    assert (shares.zero, shares.flushed, shares.subnormal, shares.normal, shares.overflow) == (0.6, 0.1, 0.1, 0.1, 0.1)
    assert sum(vars(shares).values()) == pytest.approx(1)
    assert histogram.flushed_share() == histogram.overflowed_share() == 0.25  # of the four that were not zero
    assert histogram.flushed_share(2.0**10) == 0
    assert histogram.overflowed_share(2.0**16) == 0.5


def test_all_zero_gradients_lost_nothing():
    histogram = ExponentHistogram.of(torch.tensor([0.0, -0.0]))
    assert histogram.flushed_share() == 0 and histogram.shares().zero == 1


@pytest.mark.parametrize("k", [0, 10, -10, 60])
def test_fp16_binades_split_the_counts_by_the_scaled_exponent(values, k):
    split = ExponentHistogram.of(values).fp16_binades(2.0**k)
    counts = slow_fp16_counts(values, 2.0**k)
    assert {fate: sum(per.values()) for fate, per in split.items()} == {
        fate: counts[fate] for fate in ("flushed", "subnormal", "normal", "overflow")
    }
    together = Counter()
    for per in split.values():
        assert 0 not in per.values()
        together.update(per)
    assert together == Counter({e + k: n for e, n in slow_binades(values).items()})
    assert all(e <= -25 for e in split["flushed"]) and all(-25 <= e < -14 for e in split["subnormal"])
    assert all(-14 <= e <= 15 for e in split["normal"]) and all(e >= 15 for e in split["overflow"])


@pytest.mark.parametrize("scale", [0.0, -2.0, 3.0, 65535.0, 1.0000000000000002, math.inf, math.nan])
def test_other_scales_are_refused(scale):
    with pytest.raises(LessonError, match="powers of two, like 2\\*\\*16 = 65536.0, not for a scale of"):
        ExponentHistogram().fp16_counts(scale)


def test_window_of_known_values():
    # 2^-40 leaves the flushed range above 2^-25: at 2^16 it becomes 2^-24. 1.0 fits up to 2^15.
    window = ExponentHistogram.of(torch.tensor([2.0**-40, 1.0])).window()
    assert window == LossScaleWindow(16, 15)
    assert 2.0**15 not in window and 2.0**16 not in window
    assert str(window) == "no window: keeping the small needs 2^16, keeping the large allows at most 2^15"

    window = ExponentHistogram.of(torch.tensor([2.0**-40, 2.0**-3, 0.0, math.inf, math.nan])).window()
    assert window == LossScaleWindow(16, 18)
    assert [2.0**k in window for k in (15, 16, 18, 19)] == [False, True, True, False]
    assert 100_000.0 in window and 0.0 not in window and math.nan not in window and math.inf not in window
    assert str(window) == "2^16 to 2^18"


def test_window_borders_are_fp16s_own():
    # 2^-40 and less at 2^15 is the tie that goes to zero; a float32 more is kept.
    assert ExponentHistogram.of(torch.tensor(2.0**-40)).window(0).low == 16
    assert ExponentHistogram.of(torch.tensor(2.0**-40).nextafter(torch.tensor(1.0))).window(0).low == 15
    # 65520 / 2^10 overflows at 2^10; a float32 less does not.
    assert ExponentHistogram.of(torch.tensor(65520 / 2.0**10)).window().high == 9
    assert ExponentHistogram.of(torch.tensor(65519.99609375 / 2.0**10)).window().high == 10


def test_window_allows_the_share_that_was_said():
    histogram = ExponentHistogram.of(torch.cat([torch.full((1,), 2.0**-40), torch.full((9999,), 2.0**-30)]))
    assert histogram.window(1e-4).low == 6  # one in ten thousand may go
    assert histogram.window(0.99e-4).low == histogram.window(0).low == 16


@pytest.mark.parametrize("x", [torch.finfo(torch.float32).max, 2.0**127, 2.0**-126])
def test_window_at_the_ends_of_float32(x):
    window = ExponentHistogram.of(torch.tensor(x)).window()
    assert FP16.round(x * 2.0**window.low) != 0 == FP16.round(x * 2.0 ** (window.low - 1))
    assert math.isfinite(FP16.round(x * 2.0**window.high)) and math.isinf(FP16.round(x * 2.0 ** (window.high + 1)))


def test_no_window():
    for nothing in (torch.zeros(5), torch.tensor([math.nan, math.inf, 0.0])):
        window = ExponentHistogram.of(nothing).window()
        assert window == LossScaleWindow(None, None)
        assert 1.0 not in window
        assert str(window) == "no window: every gradient is zero or non-finite"


@pytest.mark.parametrize("allowed", [-0.1, 1.5, math.nan])
def test_window_needs_a_share(allowed):
    with pytest.raises(LessonError, match="give the share that may be flushed, from 0 to 1"):
        ExponentHistogram.of(torch.ones(1)).window(allowed)


def test_json_round_trip(values):
    histogram = ExponentHistogram.of(values)
    again = ExponentHistogram.from_json(json.loads(json.dumps(histogram.to_json(), allow_nan=False)))
    assert again == histogram
    assert again.fp16_counts(2.0**5) == histogram.fp16_counts(2.0**5)
    assert ExponentHistogram().to_json() == {}


def test_adding_leaves_the_parts_alone():
    one, two = ExponentHistogram.of(torch.tensor([1.0, 0.0])), ExponentHistogram.of(torch.tensor([1.5, math.inf]))
    both = one + two
    assert (one.total, two.total, both.total) == (2, 2, 4)
    assert both.binades() == {0: 2}
    assert one != two and one != "a histogram"
    assert repr(both) == "<ExponentHistogram of 4 values, 1 zero, 1 non-finite>"
