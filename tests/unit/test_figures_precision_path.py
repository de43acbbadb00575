"""The precision path puts each op of a trace in the lane of its dtype."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from amp_lessons.autocast_ops import trace
from amp_lessons.errors import LessonError
from amp_lessons.figures.precision_path import precision_path


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(F.relu(self.linear(x)), -1)


def traces(model: nn.Module, dtype: torch.dtype = torch.float16) -> list:
    x = torch.full((2, 4), 0.5)
    return [trace(model, x, device_type=device, autocast_dtype=dtype) for device in ("cuda", "cpu")]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_lanes_and_rings(dtype):
    picture = precision_path(traces(Small(), dtype))
    cuda, cpu = picture.figure.axes
    assert list(cuda.lines[0].get_ydata()) == [0, 0, 1]  # linear and relu 16 bits, softmax float32
    assert list(cpu.lines[0].get_ydata()) == [0, 0, 0]
    assert list(cuda.lines[1].get_xdata()) == list(cpu.lines[1].get_xdata()) == [2]
    assert [label.get_text() for label in cpu.get_xticklabels()] == ["linear", "relu", "softmax"]
    assert [label.get_text() for label in cpu.get_yticklabels()] == ["float32", "16 bits"]


def test_words():
    text = precision_path(traces(Small())).text
    assert "Under CUDA autocast, op by op: linear float16, relu float16, softmax float32." in text
    assert "Under CPU autocast, op by op: linear float16, relu float16, softmax float16." in text
    assert text.endswith("Ops where they differ (ringed): softmax.")
    assert "differ" not in precision_path(traces(Small())[:1]).text


class Banned(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.binary_cross_entropy(x, x)


def test_traces_that_cannot_be_drawn_get_a_sentence():
    with pytest.raises(LessonError, match="one and the same model"):
        precision_path([traces(Small())[0], traces(nn.Linear(4, 4))[1]])
    with pytest.raises(LessonError, match="one and the same model"):
        precision_path([])
    with pytest.raises(LessonError, match="gives no dtype"):
        precision_path(traces(Banned())[:1])
