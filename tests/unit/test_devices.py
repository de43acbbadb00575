import pytest
import torch

from amp_lessons import devices
from amp_lessons.errors import LessonError


def test_pick_takes_cuda_where_there_is_one():
    assert devices.pick().type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert devices.pick("cpu") == devices.pick(torch.device("cpu")) == torch.device("cpu")


@pytest.mark.parametrize("name", ["gpu", "", "cpu:x", "cuda:-1"])
def test_not_a_device_name(name):
    with pytest.raises(LessonError, match="not a device name; use 'cpu'"):
        devices.pick(name)


def test_a_device_that_is_not_for_the_loops():
    with pytest.raises(LessonError, match="run on 'cpu' or 'cuda', not on 'meta'"):
        devices.pick("meta")


def test_no_cuda(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert devices.pick() == torch.device("cpu")
    with pytest.raises(LessonError, match="no CUDA device here; leave device out"):
        devices.pick("cuda")


def test_too_high_an_index(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert devices.pick("cuda:1") == torch.device("cuda:1")
    with pytest.raises(LessonError, match="no cuda:2: this machine has 2 CUDA"):
        devices.pick("cuda:2")


def test_describe_is_one_line_with_the_version(device):
    line = devices.describe(device)
    assert "\n" not in line
    assert line.endswith(f"PyTorch {torch.__version__}")
    assert (torch.cuda.get_device_name(device) in line) if device.type == "cuda" else line.startswith("CPU (")


def test_one_thread_puts_the_count_back(device):
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with pytest.raises(KeyboardInterrupt):
            with devices.one_thread(device):
                assert torch.get_num_threads() == (1 if device.type == "cpu" else 3)
                raise KeyboardInterrupt
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
