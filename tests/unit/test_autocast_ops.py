"""autocast_ops against PyTorch's documented op lists, against the dispatcher's registrations and against real runs."""

from __future__ import annotations

import logging
import subprocess
import sys
from html.parser import HTMLParser

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from amp_lessons.autocast_ops import differences, is_registered, measure, op_dtype, op_table, registered_ops, trace
from amp_lessons.autocast_ops.catalogue import EXAMPLES, FAMILIES
from amp_lessons.autocast_ops.dispatch import _left_alone
from amp_lessons.errors import LessonError

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
on_cuda = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
no_cuda_build = pytest.mark.skipif(torch.version.cuda is not None, reason="this build of PyTorch has CUDA kernels")


def tensor(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.full(shape, 0.5, dtype=dtype)


# --- the table: what PyTorch 2.13 documents and registers, typed in by hand

STAYS_16_ON_CPU_32_ON_CUDA = [
    "F.layer_norm", "F.group_norm", "F.rms_norm", "F.normalize", "torch.softmax", "torch.log_softmax", "torch.logsumexp",
    "torch.exp", "torch.log", "F.softplus", "x.pow(2)", "x ** 2", "1 / x", "torch.rsqrt", "x.sum()", "x.cumsum(0)",
    "x.norm()", "F.interpolate",
]  # fmt: skip
FLOAT16_ON_BOTH = [
    "a @ b", "F.linear", "torch.bmm", "torch.einsum", "F.scaled_dot_product_attention", "F.conv1d", "F.conv2d",
    "F.conv_transpose2d", "F.batch_norm", "F.instance_norm", "torch.sigmoid", "x * x", "torch.sqrt", "x.mean()", "x.var()",
    "a / b", "F.relu", "F.gelu", "F.dropout", "F.max_pool2d",
]  # fmt: skip
FLOAT32_ON_BOTH = [
    "x.prod()", "F.mse_loss", "F.l1_loss", "F.cross_entropy", "F.binary_cross_entropy_with_logits", "a + b", "torch.cat",
    "torch.where",
]  # fmt: skip
ALONE = {
    "torch.mv": ("float32", "float16"),
    "a @ b in float64": ("float64", "float64"),
    "torch.dot": ("error", "float32"),
    "x.scatter_add": ("error", "float32"),
    "F.binary_cross_entropy": ("float32", "error"),
}
EXPECTED = (
    {op: ("float16", "float32") for op in STAYS_16_ON_CPU_32_ON_CUDA}
    | {op: ("float16", "float16") for op in FLOAT16_ON_BOTH}
    | {op: ("float32", "float32") for op in FLOAT32_ON_BOTH}
    | ALONE
)


@pytest.fixture(scope="module")
def table():
    return op_table()


def test_every_op_of_the_table_gives_the_documented_dtypes(table):
    assert {row.op: (row.cpu.short, row.cuda.short) for row in table} == EXPECTED


def test_bfloat16_follows_the_same_lists(table):
    swap = {"float16": "bfloat16"}
    for half, brain in zip(table, op_table(BF16)):
        expected = [swap.get(answer.short, answer.short) for answer in (half.cpu, half.cuda)]
        assert [brain.cpu.short, brain.cuda.short] == expected, brain.op
        assert F16 not in brain.inputs


def test_inputs_of_one_dtype(table):
    full, half = op_table(inputs=F32), op_table(inputs=F16)
    for some, dtype in ((full, F32), (half, F16)):
        assert {d for row in some for d in row.inputs} == {dtype, torch.int64, F64}
        assert some["F.relu"].cuda.dtype == some["F.relu"].cpu.dtype == dtype  # takes what comes
        assert some["a @ b"].cuda.dtype == some["a @ b"].cpu.dtype == F16  # lowers it
        assert some["torch.softmax"].cuda.dtype == F32  # lifts it
    assert full["torch.softmax"].cpu.dtype == F32 and half["torch.dot"].cpu.dtype == F16
    assert full["a @ b in float64"].inputs == (F64, F64)


def test_the_table_does_not_depend_on_where_it_is_asked(table):
    with torch.autocast("cpu", dtype=BF16), torch.no_grad():
        torch.set_default_dtype(F64)
        try:
            assert op_table().text() == table.text()
        finally:
            torch.set_default_dtype(F32)


def test_text_has_every_op_and_the_errors_in_pytorchs_words(table):
    text = table.text()
    lines = text.splitlines()
    assert all(any(line.startswith(example.name) for line in lines) for example in EXAMPLES)
    assert [line.strip("[]") for line in lines if line.startswith("[")] == list(FAMILIES)
    softmax = next(line for line in lines if line.startswith("torch.softmax"))
    assert softmax.split() == ["torch.softmax", "float16", "float16", "float32", "differ"]
    assert "unsafe to autocast" in text and "expected both vectors to have same dtype" in text
    assert all(line == line.rstrip() for line in lines)


class Counter(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs).get("scope")))
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"{tag} is not closed in order"


def test_html_is_an_accessible_table_that_says_differences_in_words(table):
    page = Counter(table.html())
    assert page.open == []
    assert page.seen.count(("caption", None)) == 1
    assert page.seen.count(("th", "col")) == 5
    assert page.seen.count(("th", "row")) == len(EXAMPLES)
    assert page.seen.count(("th", "rowgroup")) == len(FAMILIES)
    assert all(scope for tag, scope in page.seen if tag == "th")
    assert page.seen.count(("strong", None)) == sum(cpu != cuda for cpu, cuda in EXPECTED.values())
    assert table._repr_html_() == table.html()


def test_a_part_of_the_table(table):
    assert [row.op for row in table.family("banned")] == ["F.binary_cross_entropy"]
    assert {row.op for row in table.differing()} == {op for op, (cpu, cuda) in EXPECTED.items() if cpu != cuda}
    assert table["torch.softmax"].cuda.dtype == F32
    with pytest.raises(LessonError, match="no family 'norms'"):
        table.family("norms")
    with pytest.raises(LessonError, match="no op 'softmax'"):
        table["softmax"]


# --- single ops

def test_binary_cross_entropy_is_banned_on_cuda_and_allowed_on_the_cpu():
    half, full = tensor(F16, 4), tensor(F32, 4)
    for x in (half, full):
        banned = op_dtype(F.binary_cross_entropy, x, x, device_type="cuda")
        assert banned.error.startswith("RuntimeError: ") and "unsafe to autocast" in banned.error
        assert banned.dtype is None and banned.short == "error" and str(banned) == banned.error
        assert op_dtype(F.binary_cross_entropy, x, x, device_type="cpu").dtype == F32


@pytest.mark.parametrize(
    ("op", "inputs", "cpu", "cuda"),
    [
        (torch.addmm, [(F32, 4, 4)] * 3, "float16", "float16"),
        (F.cosine_similarity, [(F16, 2, 4)] * 2, "float16", "float32"),
        (torch.cdist, [(F16, 2, 4)] * 2, "float32", "float32"),
        (F.bilinear, [(F32, 2, 3), (F16, 2, 4), (F32, 5, 3, 4)], "error", "float32"),
        (torch.linalg.inv, [(F16, 1, 1)], "float32", "error"),
        (F.logsigmoid, [(F16, 4)], "float16", "float16"),
        (torch.stack, None, "float32", "float32"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_more_ops(op, inputs, cpu, cuda):
    args = [[tensor(F32, 2), tensor(F16, 2)]] if inputs is None else [tensor(*spec) for spec in inputs]
    assert op_dtype(op, *args, device_type="cpu").short == cpu
    assert op_dtype(op, *args, device_type="cuda").short == cuda


def test_ops_whose_cuda_kernel_a_cpu_build_lacks_are_asked_in_parts():
    half, mean, var = tensor(F16, 2, 4, 3, 3), tensor(F32, 4), tensor(F32, 4)
    assert op_dtype(F.batch_norm, half, mean, var, training=True).dtype == F16
    assert op_dtype(lambda x: x[:, 0], half).dtype == F16
    assert op_dtype(lambda x: torch.softmax(x[:, 0], -1), half).dtype == F32
    assert "unsafe" in op_dtype(lambda x: F.binary_cross_entropy(x[0], x[0]), half).error


def test_several_results_and_views():
    answer = op_dtype(lambda x: torch.softmax(x, 0).max(0), tensor(F16, 4))
    assert answer.dtypes == (F32, torch.int64) and answer.short == "float32, int64"


def test_what_pytorch_cannot_answer_is_said():
    for op in (torch.nonzero, lambda x: x[x > 0], lambda x: x * x.sum().item()):
        answer = op_dtype(op, tensor(F16, 4))
        assert answer.short == "no answer" and answer.dtype is None and not answer.error
        assert str(answer).startswith("PyTorch cannot answer here: ") and "depends on the values" in answer.reason


@no_cuda_build
def test_a_missing_kernel_of_an_op_that_autocast_would_change_is_not_guessed():
    gates = tensor(F32, 12, 4)
    answer = op_dtype(torch.gru_cell, tensor(F32, 2, 4), tensor(F32, 2, 4), gates, gates)
    assert is_registered("gru_cell") and "needs CUDA itself" in answer.reason


def test_only_ops_that_autocast_leaves_alone_are_asked_without_cuda():
    assert _left_alone("aten::index.Tensor", "cuda") and _left_alone("aten::batch_norm", "cuda")
    assert not _left_alone("aten::mm", "cuda")  # has a rule
    assert not _left_alone("aten::lstm.input", "cuda")  # is made of ops that have one


def test_registered_ops():
    cuda, cpu = registered_ops("cuda"), registered_ops("cpu")
    assert list(cuda) == sorted(set(cuda)) and {"aten::mm", "aten::softmax.int", "aten::binary_cross_entropy"} <= set(cuda)
    assert "aten::softmax.int" not in cpu and "aten::mm" in cpu
    assert is_registered("mv") and not is_registered("mv", "cpu")
    assert is_registered("aten::softmax.int") and not is_registered("batch_norm") and not is_registered("mean")
    with pytest.raises(LessonError, match="no op 'soft_max'"):
        is_registered("soft_max")


def test_the_inputs_are_not_changed():
    x = tensor(F32, 4)
    op_dtype(torch.Tensor.add_, x, 1, device_type="cpu")
    assert torch.equal(x, tensor(F32, 4))


# --- traces


class Block(nn.Module):
    """A transformer block with its loss, attention written out."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width))
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        split = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = split[0], split[1], split[2]
        weights = ((q @ k.transpose(-1, -2)) * width**-0.5).softmax(-1)
        x = x + self.drop(self.out((weights @ v).transpose(1, 2).reshape(batch, length, width)))
        x = x + self.mlp(self.norm2(x))
        return F.cross_entropy(x.flatten(0, 1), y.flatten())


class Bce(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.binary_cross_entropy(torch.sigmoid(self.linear(x)), x).exp()


class Region(nn.Module):
    """A part of the forward pass taken out of autocast."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x @ x
        with torch.autocast(x.device.type, enabled=False):
            z = y.float() @ y.float()
        return z @ y


class Inplace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1.0)
        y = self.linear(x).relu_()
        y += x
        return y[:, torch.tensor([0, 1])].mean() + torch.arange(4, device=x.device).sum() + self.calls.sum()


def block():
    return Block(), (torch.rand(2, 4, 16), torch.zeros(2, 4, dtype=torch.int64))


def cnn():
    layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
    return nn.Sequential(*layers), (torch.rand(2, 3, 8, 8),)


def mlp():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), (torch.rand(3, 4),)


def encoder():
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (torch.rand(2, 3, 8),)


def encoder_eval():
    return encoder()[0].eval(), (torch.rand(2, 3, 8),)


MODELS = [mlp, block, cnn, encoder, encoder_eval, lambda: (Region(), (torch.rand(4, 4),)), lambda: (Inplace(), (torch.rand(3, 4),))]
MODEL_IDS = ["mlp", "block", "cnn", "encoder", "encoder_eval", "region", "inplace"]


def outline(traced) -> list[tuple[str, str, str]]:
    return [(step.module, step.op, step.answer.short) for step in traced.steps if not step.moves_only]


def test_a_transformer_block_under_cuda_autocast():
    model, inputs = block()
    assert outline(trace(model, *inputs)) == [
        ("norm1", "layer_norm", "float32"),
        ("qkv", "linear", "float16"),
        ("", "matmul", "float16"),
        ("", "mul", "float16"),
        ("", "softmax", "float32"),
        ("", "matmul", "float16"),
        ("out", "linear", "float16"),
        ("drop", "dropout", "float16"),
        ("", "add", "float32"),
        ("norm2", "layer_norm", "float32"),
        ("mlp.0", "linear", "float16"),
        ("mlp.1", "gelu", "float16"),
        ("mlp.2", "linear", "float16"),
        ("", "add", "float32"),
        ("", "cross_entropy_loss", "float32"),
    ]
    (add, _) = trace(model, *inputs).of("add")
    assert add.inputs == (F32, F16) and add.dtype == F32


def test_a_cnn_under_cuda_autocast():
    model, inputs = cnn()
    assert outline(trace(model, *inputs)) == [
        ("0", "conv2d", "float16"),
        ("1", "batch_norm", "float16"),
        ("2", "relu", "float16"),
        ("3", "adaptive_avg_pool2d", "float16"),
        ("5", "linear", "float16"),
    ]


def test_bfloat16_trace():
    model, inputs = mlp()
    assert [dtype for _, _, dtype in outline(trace(model, *inputs, autocast_dtype=BF16))] == ["bfloat16"] * 3


@pytest.mark.parametrize("dtype", [F16, BF16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("make", MODELS, ids=MODEL_IDS)
def test_the_cpu_trace_is_the_real_run_op_by_op(make, dtype):
    model, inputs = make()
    measured = measure(model, *inputs, device_type="cpu", autocast_dtype=dtype)
    assert differences(trace(model, *inputs, device_type="cpu", autocast_dtype=dtype), measured) == []
    with torch.autocast("cpu", dtype=dtype):
        assert model(*inputs).dtype == measured.steps[-1].dtype
    assert len(outline(measured)) >= 3


@pytest.mark.parametrize("make", MODELS, ids=MODEL_IDS)
@pytest.mark.parametrize("_", [pytest.param(0, marks=on_cuda)], ids=["cuda"])
def test_the_cuda_trace_is_the_real_run_op_by_op(make, _):
    model, inputs = make()
    assert differences(trace(model, *inputs, device_type="cuda"), measure(model, *inputs, device_type="cuda")) == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
@pytest.mark.parametrize("_", [pytest.param(0, marks=on_cuda)], ids=["cuda"])
def test_the_cuda_answers_are_those_of_a_real_gpu(example, _):
    answer = op_dtype(example.call, *example.tensors(), device_type="cuda")
    with torch.autocast("cuda", dtype=F16):
        try:
            real = str(example.call(*(x.cuda() for x in example.tensors())).dtype).removeprefix("torch.")
        except RuntimeError:
            real = "error"
    assert answer.short == real


@pytest.mark.parametrize("make", [block, cnn, encoder_eval], ids=["block", "cnn", "encoder_eval"])
def test_the_measured_dtypes_are_those_that_plain_hooks_see(make):
    model, inputs = make()
    seen = {}
    for name, module in model.named_modules():
        if isinstance(module, (nn.Linear, nn.LayerNorm, nn.Conv2d, nn.BatchNorm2d, nn.GELU)):
            module.register_forward_hook(lambda m, i, out, name=name: seen.update({name: out.dtype}))
    with torch.autocast("cpu", dtype=F16), torch.enable_grad():
        model(*inputs)
    measured = {step.module: step.dtype for step in measure(model, *inputs).steps}
    assert len(seen) >= 2 and {name: measured.get(name) for name in seen} == seen


@pytest.mark.parametrize("make", [block, cnn], ids=["block", "cnn"])
def test_the_ops_are_those_that_torch_export_lists(make):
    model, inputs = make()
    graph = torch.export.export(model, inputs, strict=False).graph_module.graph
    names = [node.target.overloadpacket.__name__ for node in graph.nodes if hasattr(node.target, "overloadpacket")]
    assert [step.op for step in trace(model, *inputs).steps if not step.moves_only] == [
        name for name in names if name not in ("view", "permute", "select", "transpose", "reshape", "flatten", "add_")
    ]


@pytest.mark.parametrize("device_type", ["cpu", "cuda"])
def test_a_trace_answers_as_op_dtype_does(device_type):
    class Calls(nn.Module):
        def __init__(self, call):
            super().__init__()
            self.call = call

        def forward(self, *inputs):
            return self.call(*inputs)

    for example in EXAMPLES:
        last = trace(Calls(example.call), *example.tensors(), device_type=device_type).steps[-1]
        assert last.answer.short == EXPECTED[example.name][device_type == "cuda"], example.name


def test_an_lstm_under_autocast():
    lstm, x = nn.LSTM(4, 4), torch.rand(3, 2, 4)
    assert trace(lstm, x, device_type="cuda").steps[-1].answer.dtypes == (F16, F16, F16)
    assert trace(lstm, x, device_type="cpu", autocast_dtype=BF16).steps[-1].dtype == BF16
    assert measure(lstm, x, autocast_dtype=BF16).steps[-1].dtype == BF16


def test_differences_finds_a_trace_that_does_not_fit():
    model, inputs = block()
    found = differences(trace(model, *inputs, device_type="cuda"), measure(model, *inputs, device_type="cpu"))
    assert any("softmax(float16) -> float32, measured softmax(float16) -> float16" in line for line in found)
    other, x = mlp()
    assert differences(trace(other, *x, device_type="cpu"), measure(other[0], *x)) == ["op 2 is relu in the trace and the end in the run"]


def test_code_that_reads_a_dtype_reads_the_one_of_the_device_asked_about():
    class Reads(nn.Linear):
        def forward(self, x):
            y = torch.softmax(super().forward(x), -1)
            return x.half().to(y.dtype)

    model, x = Reads(4, 4), torch.rand(2, 4)
    assert trace(model, x, device_type="cuda").steps[-1].dtype == F32
    assert trace(model, x, device_type="cpu").steps[-1].dtype == F16
    assert differences(trace(model, x, device_type="cpu"), measure(model, x)) == []


def test_attributes_that_forward_sets_do_not_stay():
    class Keeps(nn.Linear):
        def forward(self, x):
            self.last = super().forward(x)
            self.bias = None
            return self.last

    model = Keeps(4, 4)
    bias = model.bias
    for ask in (trace, measure):
        ask(model, torch.rand(2, 4))
        assert not hasattr(model, "last") and model.bias is bias


def test_a_region_with_autocast_off_inside_the_model():
    dtypes = [step.dtype for step in trace(Region(), torch.rand(4, 4)).of("matmul")]
    assert dtypes == [F16, F32, F16]


def test_a_region_with_another_dtype_inside_the_model():
    class Brain(nn.Module):
        def forward(self, x):
            y = x @ x
            with torch.autocast(x.device.type, dtype=BF16):
                z = x @ x
            with torch.autocast(x.device.type):  # no dtype: the one of the region around it
                return y @ y, z @ z

    for device_type in ("cuda", "cpu"):
        traced = trace(Brain(), torch.rand(4, 4), device_type=device_type)
        assert [step.dtype for step in traced.of("matmul")] == [F16, BF16, F16, F16]
    assert differences(traced, measure(Brain(), torch.rand(4, 4))) == []


def test_ops_that_give_back_their_own_tensor_do_so_in_a_trace():
    class Same(nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            return y if y.relu_() is y and x.float() is x else y.double()

    assert [step.op for step in trace(Same(4, 4), torch.rand(2, 4)).steps] == ["linear", "relu_", "to"]


def test_modules_with_a_fast_path_are_asked_as_in_training():
    model, inputs = encoder_eval()
    with torch.no_grad():
        ops = [step.op for step in measure(model, *inputs).steps]
        assert "_transformer_encoder_layer_fwd" not in ops and "scaled_dot_product_attention" in ops
        assert differences(trace(model, *inputs, device_type="cpu"), measure(model, *inputs)) == []


def test_no_op_casts_do_not_change_the_tensor_they_were_made_from():
    class Casts(nn.Module):
        def forward(self, x):
            y = x @ x
            return y.float().sum() + (y * y).sum()

    assert trace(Casts(), torch.rand(4, 4)).of("mul")[0].inputs == (F16, F16)


def test_wrong_shapes_end_the_trace_at_the_op_that_raises():
    for ask in (trace, measure):
        (step,) = ask(nn.Linear(4, 4), torch.rand(2, 5)).steps
        assert step.op == "linear" and step.answer.error.startswith("RuntimeError")


def test_a_trace_ends_where_the_model_would():
    steps = trace(Bce(), torch.rand(3, 4)).steps
    assert [step.op for step in steps] == ["linear", "sigmoid", "binary_cross_entropy"]
    assert "unsafe to autocast" in steps[-1].answer.error
    on_cpu = trace(Bce(), torch.rand(3, 4), device_type="cpu")
    assert [step.answer.short for step in on_cpu.steps] == ["float16", "float16", "float32", "float32"]
    assert differences(on_cpu, measure(Bce(), torch.rand(3, 4))) == []


def test_a_trace_ends_at_an_op_without_an_answer():
    class Masked(nn.Linear):
        def forward(self, x):
            return super().forward(x)[x > 0].sum()

    traced = trace(Masked(4, 4), torch.rand(2, 4))
    assert [(step.op, step.answer.short) for step in traced.steps][-1] == ("index", "no answer")
    assert traced.text().splitlines()[-1].startswith("index: PyTorch cannot answer here: the output's shape depends on")


def test_text_and_html_of_a_trace():
    model, inputs = block()
    traced = trace(model, *inputs)
    lines = traced.text().splitlines()
    assert lines[0] == "cuda autocast, float16, from PyTorch's dispatcher"
    assert "(model)  softmax             float16                    float32" in lines
    assert not any("transpose" in line for line in lines) and "transpose" in traced.text(moves=True)
    page = Counter(traced.html())
    assert page.open == [] and page.seen.count(("caption", None)) == 1
    assert page.seen.count(("th", "row")) == len(lines) - 3
    assert measure(*[model, *inputs]).title == "cpu autocast, float16, from a real run"


# --- state, safety, speed


def state(model: nn.Module):
    return (
        [(torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda")],
        torch.is_autocast_cache_enabled(),
        torch.is_grad_enabled(),
        logging.root.manager.disable,
        [(m.training, len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()],
        [(name, id(p), p.requires_grad, p.grad) for name, p in model.named_parameters()],
        torch.get_rng_state().tolist(),
        {name: value.tolist() for name, value in model.state_dict().items()},
    )


@pytest.mark.parametrize("make", [block, cnn, lambda: (Inplace(), (torch.rand(3, 4),))], ids=["block", "cnn", "inplace"])
def test_everything_is_left_as_found(make):
    model, inputs = make()
    model[1].eval() if isinstance(model, nn.Sequential) else None
    model.register_buffer("unused", torch.rand(2), persistent=False)
    kept, wide = [x.clone() for x in inputs], torch.rand(3, 5)

    def ask():
        bce = Bce()
        before = state(model)
        trace(model, *inputs)
        trace(model, *inputs, device_type="cpu", autocast_dtype=BF16)
        measure(model, *inputs)
        op_dtype(F.dropout, inputs[0], device_type="cpu")
        op_dtype(F.dropout, inputs[0], device_type="cuda", autocast_dtype=BF16)
        op_dtype(F.binary_cross_entropy, inputs[0], inputs[0])
        for dtype in (F16, BF16):  # each device's default is one of the two; the last question must not stay
            trace(model, *inputs, autocast_dtype=dtype), trace(model, *inputs, device_type="cpu", autocast_dtype=dtype)
            assert state(model) == before
        for fails in (trace, measure):
            with pytest.raises(LessonError):
                fails(model, *inputs, None, None)
            assert fails(bce, wide).steps[-1].answer.error
        assert state(model) == before

    ask()
    with torch.no_grad(), torch.autocast("cpu", dtype=F16):
        ask()
        assert (inputs[0].float() @ inputs[0].float().transpose(-1, -2)).dtype == F16
    assert all(torch.equal(a, b) for a, b in zip(inputs, kept))


def test_nothing_is_printed(capfd):
    class Branch(nn.Linear):
        def forward(self, x):
            return super().forward(x) if x.sum() > 0 else x

    assert op_dtype(torch.linalg.inv, tensor(F16, 2, 2)).error
    with pytest.raises(LessonError, match="goes by a tensor's value"):
        trace(Branch(4, 4), torch.rand(2, 4))
    assert [step.op for step in measure(Branch(4, 4), torch.rand(2, 4)).steps][-1] == "linear"
    model, inputs = block()
    trace(model, *inputs), measure(model, *inputs), op_table()
    assert capfd.readouterr() == ("", "")


IN_A_FRESH_PROCESS = """
import sys, torch
import amp_lessons.autocast_ops as ops
from amp_lessons.errors import LessonError
assert not {"torch._dynamo", "matplotlib", "ipywidgets", "sympy"} & set(sys.modules), "import is not lazy"

def enable(x):
    with torch.enable_grad():
        y = x.clone().requires_grad_()
        return (y * y).sum().backward()

def parameter(x):
    with torch.inference_mode(False):
        y = torch.nn.Parameter(x)
        return y * y

def setter(x):
    y = x.clone()
    y.requires_grad = True
    torch.set_grad_enabled(True)
    return y * y

for op in (enable, parameter, setter, lambda x: torch.autograd.functional.jacobian(torch.exp, x)):
    try:
        ops.op_dtype(op, torch.ones(4))
    except LessonError as error:
        assert "forward pass only" in str(error)
    else:
        raise SystemExit("gradients were not refused")
    assert torch.is_grad_enabled()
assert ops.op_dtype(torch.linalg.inv, torch.ones(2, 2).half()).error
weight = torch.nn.Parameter(torch.ones(4))
assert ops.op_dtype(torch.mul, weight, weight).dtype is torch.float32
print("alive")
"""


def test_gradients_are_refused_where_they_would_end_the_process():
    done = subprocess.run([sys.executable, "-W", "error", "-c", IN_A_FRESH_PROCESS], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "alive\n", "")


# --- what a user can get wrong

_WEIGHT = torch.ones(2, 2)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: op_dtype(torch.exp, torch.ones(2), device_type="gpu"), "device_type must be 'cuda' or 'cpu', not 'gpu'"),
        (lambda: op_dtype(torch.exp, torch.ones(2), autocast_dtype=F32), "must be torch.float16 or torch.bfloat16"),
        (lambda: op_table(F64), "must be torch.float16 or torch.bfloat16"),
        (lambda: op_dtype("softmax", torch.ones(2)), "needs an op to call"),
        (lambda: op_dtype(torch.exp, 2.0), "at least one example tensor"),
        (lambda: op_dtype(nn.Linear(2, 2), torch.ones(2)), "use trace"),
        (lambda: op_dtype(lambda x, w=_WEIGHT: x @ w, torch.ones(2)), "pass every tensor as an argument"),
        (lambda: op_dtype(torch.exp, torch.ones(2).to_sparse()), "dense tensors only"),
        (lambda: trace(torch.exp, torch.ones(2)), "must be a torch.nn.Module"),
        (lambda: trace(nn.Linear(2, 2)), "inputs after the model"),
        (lambda: trace(nn.Linear(2, 2), torch.ones(2), 1), "does not run on these inputs: .*positional"),
        (lambda: trace(nn.Linear(2, 2), torch.ones(2), device_type="mps"), "device_type must be"),
        (lambda: measure(nn.Linear(2, 2), torch.ones(2), 1), "does not run on these inputs: .*positional"),
    ],
)
def test_wrong_questions_get_one_sentence(call, says):
    with pytest.raises(LessonError, match=says) as caught:
        call()
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_asking_for_a_gpu_that_is_not_there():
    with pytest.raises(LessonError, match="no CUDA device here"):
        measure(nn.Linear(2, 2), torch.ones(2), device_type="cuda")

    class Explicit(nn.Linear):
        def forward(self, x):
            with torch.autocast("cuda"):
                return super().forward(x)

    with pytest.raises(LessonError, match="x.device.type"):
        trace(Explicit(2, 2), torch.ones(2))
