"""TF32 is set to what a measurement says and put back, whatever happens in between."""

import pytest
import torch

from amp_lessons.measure.ops import dtypes_for
from amp_lessons.measure.settings import SETTINGS, settings_for
from amp_lessons.measure.tf32 import float32_products, tf32_state


@pytest.mark.parametrize(("tf32", "word"), [(True, "tf32"), (False, "ieee")])
def test_setting_inside_and_old_state_after(tf32, word):
    before = tf32_state()
    with float32_products(tf32):
        inside = tf32_state()
    assert set(inside.values()) <= ({word} if hasattr(torch.backends.cuda.matmul, "fp32_precision") else {tf32})
    assert tf32_state() == before


def test_state_comes_back_after_an_error_and_out_of_nested_ones():
    before = tf32_state()
    with pytest.raises(ValueError), float32_products(True), float32_products(False):
        raise ValueError
    assert tf32_state() == before


def test_the_old_switches_can_still_be_read_afterwards():
    # PyTorch raises where its old and its new switches disagree.
    before = torch.backends.cuda.matmul.allow_tf32, torch.get_float32_matmul_precision()
    with float32_products(True):
        pass
    assert (torch.backends.cuda.matmul.allow_tf32, torch.get_float32_matmul_precision()) == before


def test_a_users_own_tf32_survives():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        with float32_products(False):
            pass
        assert torch.backends.cuda.matmul.allow_tf32 and torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)


def test_settings_state_tf32_and_only_one_allows_it():
    assert [s.name for s in SETTINGS if s.tf32] == ["tf32"]
    tf32 = next(s for s in SETTINGS if s.name == "tf32")
    assert tf32.recipe.autocast_dtype is None and not tf32.recipe.uses_scaler


def test_a_cpu_has_no_tf32():
    assert [s.name for s in settings_for(torch.device("cpu"))] == ["fp32", "amp", "bf16"]
    assert [s.name for s in settings_for(torch.device("cpu"), without_scaler=True)] == ["fp32", "fp16", "amp", "bf16"]


@pytest.mark.cuda
def test_tf32_rounds_products_on_ampere_and_ieee_does_not():
    if torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("needs a GPU with TF32")
    # 1 + 2^-12 needs 12 mantissa bits; TF32 keeps 10.
    a = torch.full((256, 256), 1 + 2**-12, device="cuda")
    one = torch.eye(256, device="cuda")
    with float32_products(False):
        assert torch.equal(a @ one, a)
    with float32_products(True):
        assert not torch.equal(a @ one, a)


@pytest.mark.parametrize(
    ("capability", "settings", "dtypes"),
    [
        ((7, 5), ["fp32", "amp"], ["float32", "float16"]),  # Turing: matrix units for fp16 only
        ((8, 0), ["fp32", "tf32", "amp", "bf16"], ["float32", "tf32", "float16", "bfloat16"]),
    ],
)
def test_tf32_and_bf16_come_with_ampere(monkeypatch, capability, settings, dtypes):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
    assert [s.name for s in settings_for(torch.device("cuda"))] == settings
    assert dtypes_for(torch.device("cuda")) == dtypes
