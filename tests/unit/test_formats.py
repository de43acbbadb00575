"""Facts: IEEE 754 binary16/32, arXiv:1905.12322 (bfloat16), arXiv:2209.05433 table 1 (FP8), and PyTorch's own casts."""

import math

import pytest
import torch

from amp_lessons.errors import LessonError
from amp_lessons.formats import BF16, FORMATS, FP8_E4M3, FP8_E5M2, FP16, FP32, Bits, Fate

NARROW = (FP16, BF16, FP8_E4M3, FP8_E5M2)
# PyTorch's E4M3 casts saturate since 2.12 (pytorch/pytorch#178817); before that they gave NaN above 464.
E4M3_SATURATES = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 12)

each_format = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
each_narrow = pytest.mark.parametrize("form", NARROW, ids=lambda form: form.name)


def bits_of(values: torch.Tensor) -> torch.Tensor:
    """The stored codes as non-negative integers."""
    size = values.dtype.itemsize
    signed = values.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[size])
    return signed.long() & (2 ** (8 * size) - 1)


def every_value(form):
    """Every code of a format of at most 16 bits, as PyTorch reads it."""
    codes = torch.arange(2**form.bits)
    return codes.to(torch.uint8).view(form.dtype) if form.bits == 8 else codes.to(torch.int16).view(form.dtype)


def random_float32(count: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    bits = torch.randint(-(2**31), 2**31, (count,), generator=generator)
    return bits.to(torch.int32).view(torch.float32)


def torch_cast(form, values: torch.Tensor) -> torch.Tensor:
    """PyTorch's cast, read back as float64. On PyTorch before 2.12 the overflow of E4M3 is put to what 2.12 gives."""
    cast = values.to(form.dtype).double()
    if form is FP8_E4M3 and not E4M3_SATURATES:
        assert cast[values.abs() > 464].isnan().all()  # the older rule, pinned
        cast = torch.where(values.abs() > 464, torch.copysign(torch.tensor(448.0).double(), values.double()), cast)
    return cast


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Equal with NaN equal to NaN and -0 not equal to +0."""
    number = ~left.isnan()
    return bool(
        torch.equal(number, ~right.isnan())
        and torch.equal(left[number], right[number])
        and torch.equal(left[number].signbit(), right[number].signbit())
    )


@pytest.mark.parametrize(
    "form, bits, largest, normal, subnormal, epsilon, integers",
    [
        (FP32, 32, 3.4028234663852886e38, 2.0**-126, 2.0**-149, 2.0**-23, 2**24),
        (FP16, 16, 65504.0, 6.103515625e-05, 5.960464477539063e-08, 0.0009765625, 2048),
        (BF16, 16, 3.3895313892515355e38, 1.1754943508222875e-38, 2.0**-133, 0.0078125, 256),
        (FP8_E4M3, 8, 448.0, 2.0**-6, 2.0**-9, 0.125, 16),
        (FP8_E5M2, 8, 57344.0, 2.0**-14, 2.0**-16, 0.25, 8),
    ],
)
def test_published_limits(form, bits, largest, normal, subnormal, epsilon, integers):
    assert form.bits == bits
    assert form.max == largest
    assert form.smallest_normal == normal
    assert form.smallest_subnormal == subnormal
    assert form.epsilon == epsilon
    assert form.round(float(integers)) == integers
    assert form.round(float(integers + 1)) == integers  # the first integer that has no code, a tie to even


@each_format
def test_limits_are_those_of_torch(form):
    info = torch.finfo(form.dtype)
    assert (form.bits, form.max, form.smallest_normal, form.epsilon) == (info.bits, info.max, info.tiny, info.eps)


def test_binades_of_the_fp8_paper():
    def binades(form):
        return round(math.log2(form.max) - 0.5) - round(math.log2(form.smallest_subnormal)) + 1

    assert binades(FP8_E4M3) == 18
    assert binades(FP8_E5M2) == 32
    assert binades(FP16) == 40


@each_narrow
def test_every_code_decodes_as_torch_reads_it(form):
    values = every_value(form).double()
    ours = torch.tensor([form.decode(f"{code:0{form.bits}b}") for code in range(2**form.bits)], dtype=torch.float64)
    assert same(ours, values)


def test_every_fp16_code_survives_rounding_and_encoding():
    stored = every_value(FP16)
    assert same(FP16.round(stored), stored.double())
    codes = bits_of(stored).tolist()
    for code, value in zip(codes, stored.tolist()):
        if value == value:  # NaN has 2046 codes; the one that is written is checked below
            assert str(FP16.encode(value)).replace(" ", "") == f"{code:016b}"


@each_narrow
def test_rounding_is_torchs_cast_on_random_bits(form):
    values = random_float32(200_000)
    assert same(form.round(values), torch_cast(form, values))


@each_narrow
def test_rounding_is_torchs_cast_at_every_midpoint_and_its_neighbours(form):
    stored = every_value(form).float()
    ordered = stored[stored.isfinite()].sort().values
    middle = (ordered[:-1] + ordered[1:]) / 2  # exact in float32
    inf = torch.tensor(math.inf)
    values = torch.cat([middle, middle.nextafter(inf), middle.nextafter(-inf), ordered])
    assert same(form.round(values), torch_cast(form, values))


def test_rounding_float32_changes_nothing_and_float64_goes_through_float32():
    values = random_float32(100_000, seed=1)
    assert same(FP32.round(values), values.double())
    # 2^-25 (1 + 2^-40) is a tie only after it became a float32; numpy, which rounds once, gives 6e-08 here.
    assert FP16.round(2.0**-25 * (1 + 2.0**-40)) == 0 == torch.tensor(2.0**-25 * (1 + 2.0**-40)).half().item()


def test_rounding_keeps_shape_and_gives_floats_for_floats():
    assert FP16.round(torch.tensor(0.1)).shape == ()
    assert FP16.round(torch.zeros(2, 0, 3)).shape == (2, 0, 3)
    strided = torch.arange(12.0).reshape(3, 4).t()[::2]
    assert torch.equal(FP16.round(strided + 0.0001), (strided + 0.0001).half().double())
    assert isinstance(FP16.round(1), float)


@pytest.mark.parametrize(
    "x, stored",
    [
        (1e-8, 0.0),
        (2.0**-25, 0.0),
        (2.980232594040899e-08, 2.0**-24),  # the next float32 above 2^-25
        (1.5 * 2.0**-24, 2 * 2.0**-24),
        (2.5 * 2.0**-24, 2 * 2.0**-24),
        (3.5 * 2.0**-24, 4 * 2.0**-24),
        (65519.99609375, 65504.0),
        (65520.0, math.inf),
        (1 + 2.0**-11, 1.0),
        (1 + 1e-4, 1.0),
        (1 - 2.0**-11, 0.99951171875),
    ],
)
def test_fp16_edges(x, stored):
    assert FP16.round(x) == stored
    assert FP16.round(-x) == -stored


def test_e4m3_saturates_and_e5m2_overflows():
    assert [FP8_E4M3.round(x) for x in (464.0, 464.1, 480.0, 1e4, math.inf, -math.inf)] == [448.0] * 5 + [-448.0]
    assert [FP8_E5M2.round(x) for x in (61439.0, 61440.0)] == [57344.0, math.inf]
    in_torch = torch.tensor([480.0, math.inf]).to(torch.float8_e4m3fn).float()
    if E4M3_SATURATES:
        assert in_torch.tolist() == [448.0, 448.0]
    else:
        assert in_torch.isnan().all(), f"torch {torch.__version__} should still give NaN here"


@each_format
def test_encode_gives_torchs_bits(form):
    special = torch.tensor([0.0, -0.0, math.inf, -math.inf, 1.0, -2.0, 1e-45, form.max, -form.max, form.smallest_subnormal])
    values = torch.cat([special, random_float32(1500, seed=2)])
    values = values[~values.isnan()]
    if form is FP8_E4M3:
        values = values[values.abs() <= 464]  # beyond, it depends on the version of torch: see above
    codes = bits_of(values.to(form.dtype)).tolist()
    for value, code in zip(values.tolist(), codes):
        assert str(form.encode(value)).replace(" ", "") == f"{code:0{form.bits}b}", value


@each_format
def test_nan_stays_nan(form):
    assert math.isnan(form.round(math.nan))
    assert math.isnan(form.decode(form.encode(math.nan)))
    code = bits_of(torch.tensor([math.nan]).to(form.dtype)).item()
    assert math.isnan(form.decode(f"{code:0{form.bits}b}"))
    if form is not BF16:  # PyTorch writes 7FC0 or FFFF there, by the path that the cast takes
        assert str(form.encode(math.nan)).replace(" ", "") == f"{code:0{form.bits}b}"


def test_sign_of_zero():
    assert math.copysign(1, FP16.round(-0.0)) == -1
    assert math.copysign(1, FP16.round(-1e-9)) == -1
    assert FP16.encode(-0.0) == Bits("1", "00000", "0000000000")
    assert math.copysign(1, FP16.decode("1 00000 0000000000")) == -1
    assert str(FP16.encode(1.0)) == "0 01111 0000000000"


@each_narrow
def test_spacing_is_the_distance_to_the_next_code(form):
    stored = every_value(form).double()
    ordered = stored[stored.isfinite() & ~stored.signbit()].sort().values.tolist()
    for here, after in zip(ordered, ordered[1:]):
        assert form.spacing(here) == form.spacing(-here) == after - here


def test_spacing_of_float32_and_beyond_the_largest_number():
    one = torch.tensor(1.0)
    assert FP32.spacing(1.0) == (one.nextafter(torch.tensor(2.0)) - one).item() == 2.0**-23
    assert FP16.spacing(65504) == FP16.spacing(1e30) == 32
    assert FP16.spacing(0) == 2.0**-24


@pytest.mark.parametrize("x", [math.inf, -math.inf, math.nan])
def test_spacing_needs_a_finite_number(x):
    with pytest.raises(LessonError, match="not defined; give a finite number"):
        FP16.spacing(x)


@pytest.mark.parametrize("code", ["", "0", "0" * 15, "0" * 17, "2" + "0" * 15, "0x" + "0" * 14])
def test_decode_names_the_bits_it_needs(code):
    with pytest.raises(LessonError, match="FP16 needs exactly 16 bits of 0 and 1"):
        FP16.decode(code)


@pytest.mark.parametrize("scale", [math.inf, -math.inf, math.nan])
def test_fate_needs_a_finite_scale(scale):
    with pytest.raises(LessonError, match="loss scale of .* is not usable"):
        FP16.fate(1.0, scale)


@pytest.mark.parametrize(
    "x, scale, fate",
    [
        (0.0, 1, Fate.ZERO),
        (-0.0, 2.0**16, Fate.ZERO),
        (2.0**-25, 1, Fate.FLUSHED),
        (2.980232594040899e-08, 1, Fate.SUBNORMAL),
        (2.0**-14 * (1 - 2.0**-24), 1, Fate.SUBNORMAL),
        (2.0**-14, 1, Fate.NORMAL),
        (65519.99609375, 1, Fate.NORMAL),
        (65520.0, 1, Fate.OVERFLOW),
        (-65520.0, 1, Fate.OVERFLOW),
        (math.inf, 1, Fate.NONFINITE),
        (math.nan, 0.0, Fate.NONFINITE),
        (1e-8, 1, Fate.FLUSHED),
        (1e-8, 2.0**10, Fate.SUBNORMAL),
        (1e-8, 2.0**16, Fate.NORMAL),
        (1.0, 2.0**15, Fate.NORMAL),
        (1.0, 2.0**16, Fate.OVERFLOW),
        (1.0, 0.0, Fate.FLUSHED),
        (1e38, 2.0**10, Fate.OVERFLOW),
        (1.0, 65519.999, Fate.OVERFLOW),  # the product is a float32, 65520, before it is stored
    ],
)
def test_fates_in_fp16(x, scale, fate):
    assert FP16.fate(x, scale) is fate


@each_format
def test_fate_agrees_with_torchs_cast(form):
    infinity = torch.tensor(math.inf)
    edges = torch.tensor([form.flush_limit, form.smallest_normal, form.overflow_limit, form.max, form.smallest_subnormal])
    edges = torch.cat([edges, edges.nextafter(infinity), edges.nextafter(-infinity)])
    for value in torch.cat([edges, -edges, random_float32(1500, seed=3)]):
        x = value.item()
        stored = torch_cast(form, value[None]).item()
        if not math.isfinite(x):
            expected = Fate.NONFINITE
        elif x == 0:
            expected = Fate.ZERO
        elif stored == 0:
            expected = Fate.FLUSHED
        elif math.isinf(stored) or (form is FP8_E4M3 and abs(x) > 464):
            expected = Fate.OVERFLOW
        else:
            expected = Fate.SUBNORMAL if abs(x) < torch.finfo(form.dtype).tiny else Fate.NORMAL
        assert form.fate(x) is expected, x


def test_float32_overflows_and_flushes_only_by_the_scale():
    assert FP32.fate(FP32.max) is Fate.NORMAL
    assert FP32.fate(FP32.max, 2.0) is Fate.OVERFLOW
    assert FP32.fate(2.0**-149) is Fate.SUBNORMAL
    assert FP32.fate(2.0**-149, 0.5) is Fate.FLUSHED


def test_a_changed_default_dtype_changes_nothing():
    torch.set_default_dtype(torch.float16)
    try:
        assert FP32.round(0.1) == 0.10000000149011612
        assert FP16.fate(1e5) is Fate.OVERFLOW
    finally:
        torch.set_default_dtype(torch.float32)
