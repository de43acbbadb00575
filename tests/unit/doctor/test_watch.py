"""The watch itself: it changes nothing, lets errors through, puts everything back, and stays small."""

from __future__ import annotations

import contextlib
import copy
import gc
import html
import io
import pickle
import random
import sys
import threading
import traceback
import tracemalloc

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.amp import GradScaler, autocast
from torch.overrides import _get_current_function_mode_stack
from torch.utils.checkpoint import checkpoint

import amp_lessons
from amp_lessons.doctor import Finding, patches, watch
from amp_lessons.doctor.messages import CAUSES, cause_of
from amp_lessons.doctor.report import as_html, as_text
from amp_lessons.errors import LessonError
from tests.unit.doctor.cases import batches, finish, forward_loss, fp16, mlp

# -- nothing changes, to the bit ------------------------------------------------------------------------------------

LOOPS = {}


def loop(function):
    LOOPS[function.__name__] = function
    return function


def everything(model, optimizers, losses):
    """All that a loop leaves behind, as bytes where order matters not."""
    states = [optimizer.state_dict() for optimizer in optimizers]
    buffer = io.BytesIO()
    pickle.dump(
        [
            [loss.detach().numpy().tobytes() for loss in losses],
            [(name, value.numpy().tobytes()) for name, value in model.state_dict().items()],
            [None if p.grad is None else p.grad.numpy().tobytes() for p in model.parameters()],
            [_plain(state) for state in states],
            torch.get_rng_state().numpy().tobytes(),
            repr(numpy.random.get_state()),
            random.getstate(),
        ],
        buffer,
    )
    return buffer.getvalue()


def _plain(item):
    if isinstance(item, torch.Tensor):
        return item.dtype, item.detach().numpy().tobytes()
    if isinstance(item, dict):
        return [(key, _plain(value)) for key, value in item.items()]
    return [_plain(value) for value in item] if isinstance(item, (list, tuple)) else item


def dropout_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 1))


def run_plain(watching, optimizer_of, net=dropout_net, amp=True, clip=False, every=1, steps=8, init_scale=2.0**14, zero=True):
    model = net()
    optimizer, scaler = optimizer_of(model), GradScaler("cpu", init_scale=init_scale, growth_interval=3, enabled=amp)
    losses = []
    with watching(model, optimizer, scaler):
        for step, (x, y) in enumerate(batches(steps)):
            x = x + float(numpy.random.rand()) * random.random()
            with autocast("cpu", dtype=torch.float16, enabled=amp):
                loss = F.mse_loss(model(x), y) / every
            scaler.scale(loss).backward()
            losses.append(loss)
            if step % every == every - 1:
                if clip:
                    scaler.unscale_(optimizer)
                    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
    return everything(model, [optimizer], losses)


def _with(name, optimizer_of, **options):
    LOOPS[name] = lambda watching: run_plain(watching, optimizer_of, **options)


def adam(model, **options):
    return torch.optim.Adam(model.parameters(), lr=1e-2, **options)


_with("sgd_float32", lambda m: torch.optim.SGD(m.parameters(), 0.01, momentum=0.9), amp=False)
_with("sgd", lambda m: torch.optim.SGD(m.parameters(), 0.01, momentum=0.9))
_with("adam", adam)
_with("adamw_foreach", lambda m: torch.optim.AdamW(m.parameters(), 1e-2, foreach=True))
_with("adam_fused", lambda m: adam(m, fused=True))
_with("sgd_fused_clipped", lambda m: torch.optim.SGD(m.parameters(), 0.01, fused=True), clip=True)
_with("accumulation", adam, every=3)
_with("clipping", adam, clip=True)
_with("skipped_steps", adam, init_scale=2.0**30, steps=30)
_with("batch_norm", adam, net=lambda: nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.1), nn.Linear(16, 1)))
_with("compiled_eager", adam, net=lambda: torch.compile(dropout_net(), backend="eager"))


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        torch.manual_seed(0)
        self.into, self.block, self.reentrant = nn.Linear(8, 8), dropout_net(), reentrant

    def forward(self, x):
        return checkpoint(self.block, self.into(x), use_reentrant=self.reentrant)


_with("checkpointing_reentrant", adam, net=lambda: Checkpointed(True))
_with("checkpointing_not_reentrant", adam, net=lambda: Checkpointed(False))


@loop
def closures(watching):
    model, losses = dropout_net(), []
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    with watching(model, optimizer):
        for x, y in batches(4):

            def closure(x=x, y=y):
                optimizer.zero_grad()
                loss = F.mse_loss(model(x), y)
                loss.backward()
                losses.append(loss)
                return loss

            optimizer.step(closure)
    return everything(model, [optimizer], losses)


@loop
def two_optimizers(watching):
    model, losses = dropout_net(), []
    optimizers = [torch.optim.SGD(model[0].parameters(), 0.01), torch.optim.Adam(model[4].parameters(), 1e-2)]
    scaler = GradScaler("cpu", init_scale=2.0**12, growth_interval=2)
    with watching(model, optimizers, scaler):
        for x, y in batches(8):
            losses.append(forward_loss(model, x, y))
            scaler.scale(losses[-1]).backward()
            for optimizer in optimizers:
                scaler.step(optimizer)
            scaler.update()
            model.zero_grad()
    return everything(model, optimizers, losses)


@loop
def penalty(watching):
    model, losses = dropout_net(), []
    optimizer, scaler = adam(model), GradScaler("cpu", init_scale=2.0**10)
    with watching(model, optimizer, scaler):
        for x, y in batches(6):
            x.requires_grad_()
            loss = forward_loss(model, x, y)
            (grad,) = torch.autograd.grad(scaler.scale(loss), x, create_graph=True)
            loss = loss + (grad / scaler.get_scale()).norm(2, dim=1).sub(1).square().mean()
            scaler.scale(loss).backward()
            losses.append(loss)
            finish(scaler, optimizer)
    return everything(model, [optimizer], losses)


@loop
def transformer_evaluated_in_between(watching):
    """In evaluation PyTorch's encoder takes a fast path that anything watching its operations would turn off."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    model, losses = nn.Sequential(nn.Linear(8, 16), nn.TransformerEncoder(layer, 2), nn.Linear(16, 1)), []
    optimizer = adam(model)
    with watching(model, optimizer):
        for x, y in batches(4):
            model.eval()
            with torch.no_grad():
                losses.append(model(x.unsqueeze(0)))
            model.train()
            losses.append(F.mse_loss(model(x.unsqueeze(0)).squeeze(0), y))
            losses[-1].backward()
            model.eval()
            with torch.no_grad():
                losses.append(model(x.unsqueeze(0)))
            optimizer.step()
            optimizer.zero_grad()
    return everything(model, [optimizer], losses)


@loop
def default_device_and_dtype(watching):
    """The user's own function mode is entered and left around the forward pass."""
    model, losses = dropout_net(), []
    optimizer = adam(model)
    with watching(model, optimizer):
        for x, y in batches(4):
            with torch.device("cpu"):
                output = model(x)
            losses.append(F.mse_loss(output, y) + torch.zeros(()))
            losses[-1].backward()
            optimizer.step()
            optimizer.zero_grad()
            assert not _get_current_function_mode_stack()
    return everything(model, [optimizer], losses)


@loop
def default_device_set_anew_in_the_loop(watching):
    """PyTorch expects the default device's mode under all others, whatever the examination does."""
    model, losses = dropout_net(), []
    optimizer = adam(model)
    torch.set_default_device("cpu")
    try:
        with watching(model, optimizer):
            for step, (x, y) in enumerate(batches(4)):
                losses.append(F.mse_loss(model(x), y))
                if step == 0:
                    torch.set_default_device("cpu")
                losses[-1].backward()
                optimizer.step()
                optimizer.zero_grad()
    finally:
        torch.set_default_device(None)
    assert not _get_current_function_mode_stack()
    return everything(model, [optimizer], losses)


@pytest.mark.parametrize("name", LOOPS)
def test_nothing_changes_to_the_bit(name):
    results = []
    for watching in (lambda *_: contextlib.nullcontext(), watch):
        torch._dynamo.reset()
        torch.manual_seed(3)
        numpy.random.seed(3)
        random.seed(3)
        results.append(LOOPS[name](watching))
    assert results[0] == results[1]


def test_loop_would_differ_if_something_did_change():
    """The comparison above can fail: one random number more, and the results differ."""

    @contextlib.contextmanager
    def careless(*_):
        torch.rand(1)
        yield

    numbers = []
    for watching in (watch, careless):
        numpy.random.seed(3)
        random.seed(3)
        numbers.append(run_plain(watching, adam))
    assert numbers[0] != numbers[1]


def test_model_is_not_marked():
    """Copies and pickles of a watched model are those of the model alone."""
    model = mlp()
    plain, (x, _) = pickle.dumps(model), next(batches(1))
    keys = set(vars(model))
    with watch(model):
        model(x)
        assert pickle.dumps(model) == plain
        assert vars(copy.deepcopy(model)).keys() == keys and b"doctor" not in pickle.dumps(copy.deepcopy(model))
        assert set(vars(model)) == keys and not model._forward_hooks and not model._forward_pre_hooks


# -- errors ---------------------------------------------------------------------------------------------------------


class Trouble(Exception):
    pass


def test_exception_passes_unchanged():
    model, (x, y) = mlp(), next(batches(1))
    error = Trouble("mine")
    with pytest.raises(Trouble) as caught, watch(model, torch.optim.SGD(model.parameters(), 0.1)) as doctor:
        F.mse_loss(model(x), y).backward()
        raise error
    assert caught.value is error and str(error) == "mine" and not getattr(error, "__notes__", None)
    last = traceback.extract_tb(error.__traceback__)[-1]
    assert last.filename == __file__ and last.line == "raise error"
    assert error.__cause__ is None and error.__context__ is None
    assert doctor.findings == []


def test_exception_inside_the_model_ends_in_the_users_line():
    class Breaks(nn.Linear):
        def forward(self, x):
            raise Trouble("in forward")

    model = Breaks(8, 1)
    with pytest.raises(Trouble) as caught, watch(model):
        model(torch.randn(2, 8))
    assert traceback.extract_tb(caught.value.__traceback__)[-1].line == 'raise Trouble("in forward")'
    assert not _get_current_function_mode_stack()


def test_error_has_a_note_and_the_findings_are_there():
    model, scaler = mlp(), GradScaler("cpu", init_scale=2.0**10)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with pytest.raises(RuntimeError, match="has already been called") as caught, watch(model, optimizer, scaler) as doctor:
        for x, y in batches(2):
            scaler.scale(forward_loss(model, x, y)).backward()
            scaler.unscale_(optimizer)
    assert [finding.rule for finding in doctor.findings if finding.severity == "error"] == ["unscale-twice"]
    if sys.version_info >= (3, 11):
        (note,) = caught.value.__notes__
        assert note.startswith("amp_lessons doctor: unscale_ ran twice") and "\n" not in note


def test_steps_after_a_caught_error_are_watched():
    """An error in backward leaves the doctor able to hear the next one."""
    model, optimizer = mlp(), None
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with watch(model, optimizer) as doctor:
        for step, (x, y) in enumerate(batches(6)):
            loss = F.mse_loss(model(x), y)
            if step == 2:
                handle = model[0].weight.register_hook(lambda grad: (_ for _ in ()).throw(Trouble("in backward")))
                with pytest.raises(Trouble):
                    loss.backward()
                handle.remove()
                optimizer.zero_grad()
                loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    assert doctor._observer.depth == 0
    assert len(doctor._observer.recent[-2].of("backward")) == 1 and doctor._steps == 6
    assert not doctor.findings


def half(*shape):
    return torch.randn(*shape, dtype=torch.float16)


def _loop(body, optimizer_of=None, model_of=mlp):
    model = model_of()
    optimizer = (optimizer_of or (lambda m: torch.optim.SGD(m.parameters(), 0.01)))(model)
    scaler = GradScaler("cpu", init_scale=2.0**10)
    for x, y in batches(2):
        body(model, optimizer, scaler, x, y)


def unscales_fp16_gradients():
    model = mlp().half()
    scaler, optimizer = GradScaler("cpu", init_scale=8.0), torch.optim.SGD(model.parameters(), 0.01)
    scaler.scale(model(half(4, 8)).float().mean()).backward()
    scaler.step(optimizer)


def unscales_twice():
    def body(model, optimizer, scaler, x, y):
        scaler.scale(forward_loss(model, x, y)).backward()
        scaler.unscale_(optimizer)

    _loop(body)


def unscales_after_step():
    def body(model, optimizer, scaler, x, y):
        scaler.scale(forward_loss(model, x, y)).backward()
        scaler.step(optimizer)
        scaler.unscale_(optimizer)

    _loop(body)


def steps_twice():
    def body(model, optimizer, scaler, x, y):
        scaler.scale(forward_loss(model, x, y)).backward()
        scaler.step(optimizer)

    _loop(body)


def steps_without_gradients():
    def body(model, optimizer, scaler, x, y):
        scaler.scale(forward_loss(model, x, y)).backward()
        optimizer.zero_grad()
        scaler.step(optimizer)

    _loop(body)


def updates_without_step():
    def body(model, optimizer, scaler, x, y):
        scaler.scale(forward_loss(model, x, y)).backward()
        scaler.update()

    _loop(body)


def never_scales():
    def body(model, optimizer, scaler, x, y):
        forward_loss(model, x, y).backward()
        scaler.step(optimizer)

    _loop(body)


def banned_on_cuda():
    from torch._subclasses.fake_tensor import FakeTensorMode

    enabled = torch.is_autocast_enabled("cuda")
    try:
        torch.set_autocast_enabled("cuda", True)
        with FakeTensorMode(), torch.no_grad():
            probability = torch.rand(4, device="cuda")
            F.binary_cross_entropy(probability, probability)
    finally:
        torch.set_autocast_enabled("cuda", enabled)


def linear_of_half():
    nn.Linear(4, 4)(half(2, 4))


def product_of_half_and_float():
    half(4, 4) @ torch.randn(4, 4)


def convolution_of_half():
    nn.Conv2d(3, 3, 3)(half(1, 3, 8, 8))


def convolution_of_half_without_bias():
    nn.Conv2d(3, 3, 3, bias=False)(half(1, 3, 8, 8))


def custom_function():
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            return grad @ w.t(), x.t() @ grad

    x, w = torch.randn(2, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    with fp16():
        output = Product.apply(x, w)
    output.float().sum().backward()


def mask_beyond_half():
    half(4).masked_fill(torch.ones(4, dtype=torch.bool), -1e9)


def empty_scaler_state():
    GradScaler("cpu").load_state_dict(GradScaler("cpu", enabled=False).state_dict())


def loss_without_graph():
    with torch.no_grad():
        loss = mlp()(torch.randn(2, 8)).mean()
    loss.backward()


def lstm_in_half():
    with fp16():
        nn.LSTM(4, 4)(torch.randn(2, 2, 4))


def clip_that_raises():
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.tensor([float("inf"), 1.0])
    nn.utils.clip_grad_norm_([weight], 1.0, error_if_nonfinite=True)


def closure_with_scaler():
    def body(model, optimizer, scaler, x, y):
        scaler.scale(forward_loss(model, x, y)).backward()
        scaler.step(optimizer, closure=lambda: forward_loss(model, x, y))

    _loop(body, lambda m: torch.optim.LBFGS(m.parameters()))


def numpy_of_bfloat16():
    torch.ones(2, dtype=torch.bfloat16).numpy()


REAL = {
    unscales_fp16_gradients: "some parameters are float16",
    unscales_twice: "unscale_ ran twice",
    unscales_after_step: "belong before scaler.step",
    steps_twice: "scaler.update() was not called",
    steps_without_gradients: "none of this optimizer's parameters has a gradient",
    updates_without_step: "without a scaler.step(optimizer) before it",
    never_scales: "has not run",
    banned_on_cuda: "binary_cross_entropy_with_logits",
    linear_of_half: "a 16-bit tensor met a float32 one",
    product_of_half_and_float: "a 16-bit tensor met a float32 one",
    convolution_of_half: "a 16-bit tensor met a float32 one",
    convolution_of_half_without_bias: "a 16-bit tensor met a float32 one",
    custom_function: "custom_fwd",
    mask_beyond_half: "beyond float16's 65504",
    empty_scaler_state: "saved from a disabled GradScaler",
    loss_without_graph: "the loss has no graph",
    lstm_in_half: "nn.LSTM does not run in float16 on the CPU",
    clip_that_raises: "error_if_nonfinite=True",
    closure_with_scaler: "LBFGS",
    numpy_of_bfloat16: "NumPy has no bfloat16",
}


@pytest.mark.parametrize("mistake", REAL, ids=lambda function: function.__name__)
def test_pytorchs_own_error_is_explained(mistake):
    with pytest.raises(Exception) as caught, watch(mlp()):  # noqa: B017 - each raises its own
        mistake()
        if mistake is lstm_in_half:
            pytest.skip("this CPU runs an LSTM in float16")
    cause = cause_of(caught.value)
    assert cause is not None and REAL[mistake] in cause, str(caught.value)
    if sys.version_info >= (3, 11):
        assert caught.value.__notes__ == [f"amp_lessons doctor: {cause}"]


def test_every_cause_is_one_sentence_and_has_its_real_error():
    cuda_only = '"_amp_foreach_non_finite_check_and_unscale_cuda" not implemented for \'BFloat16\''  # pytorch issue 127176
    assert "bf16 needs no scaler" in cause_of(NotImplementedError(cuda_only))
    explained = set(REAL.values()) | {"bf16 needs no scaler"}
    for _, cause in CAUSES:
        assert cause.endswith(".") and "\n" not in cause
        assert any(words in cause for words in explained), f"no test raises: {cause}"


def wrong_dtype_but_not_mixed_precision():
    torch.randn(4, 4) @ torch.randn(4, 4, dtype=torch.float64)


def cholesky_of_bfloat16():
    torch.linalg.cholesky(torch.eye(3, dtype=torch.bfloat16))


def wrong_target_dtype():
    F.cross_entropy(torch.randn(4, 4), torch.zeros(4, dtype=torch.int32))


def wrong_shape():
    torch.randn(4, 4) @ torch.randn(3, 4)


@pytest.mark.parametrize(
    "mistake", [wrong_dtype_but_not_mixed_precision, cholesky_of_bfloat16, wrong_target_dtype, wrong_shape], ids=lambda f: f.__name__
)
def test_other_errors_are_not_explained(mistake):
    with pytest.raises(Exception) as caught, watch(mlp()):  # noqa: B017
        mistake()
    assert cause_of(caught.value) is None and not getattr(caught.value, "__notes__", None)


# -- everything is put back -----------------------------------------------------------------------------------------


def patched():
    """Everything of PyTorch's that a watch touches."""
    from torch.nn.modules import module
    from torch.optim import optimizer

    attributes = {(owner, name): vars(owner).get(name) for owner, name, _ in patches._targets()}
    attributes[nn.Module, "__call__"] = vars(nn.Module)["__call__"]
    hooks = [optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks]
    hooks += [getattr(module, name) for name in vars(module) if name.startswith("_global_") and "hook" in name]
    return attributes, [dict(each) for each in hooks if isinstance(each, dict)], list(_get_current_function_mode_stack())


def one_step(model, error=None):
    x, y = next(batches(1))
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.01), GradScaler("cpu", init_scale=2.0**10)
    scaler.scale(forward_loss(model, x, y)).backward()
    if error:
        raise error
    finish(scaler, optimizer)


def test_watch_touches_something():
    before = patched()
    with watch(mlp()):
        assert patched() != before


@pytest.mark.parametrize("error", [None, Trouble(), KeyboardInterrupt(), SystemExit(3), GeneratorExit()], ids=repr)
def test_everything_is_put_back(error):
    model, before = mlp(), patched()
    with contextlib.suppress(BaseException), watch(model):
        one_step(model, error)
    assert patched() == before
    assert patches.observers() == () and patches._watchers == 0 and not patches._undo


def test_interrupt_inside_a_patched_call():
    model, before, (x, y) = mlp(), patched(), next(batches(1))
    model[0].weight.register_hook(lambda grad: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt), watch(model) as doctor:
        F.mse_loss(model(x), y).backward()
    assert patched() == before and doctor._observer.depth == 0


def test_interrupt_while_the_doctor_works(monkeypatch):
    """Ctrl-C may come at any moment: then it must end the loop, and nothing may stay behind."""
    model, before = mlp(), patched()
    with pytest.raises(KeyboardInterrupt), watch(model) as doctor:
        monkeypatch.setattr(doctor._observer, "_judge", lambda recent: (_ for _ in ()).throw(KeyboardInterrupt()))
        one_step(model)
        one_step(model)
    assert patched() == before and patches.observers() == ()


def test_nested_and_repeated_watches():
    before, first, second = patched(), mlp(), mlp(seed=1)
    for _ in range(3):
        with watch(first) as outer:
            one_step(first)
            with watch(second) as inner:
                one_step(second)
            assert patched() != before, "the outer one still listens"
            one_step(first)
        assert patched() == before
        assert outer._steps == 3 and inner._steps == 1


def test_watch_can_be_entered_again_but_not_twice_at_once():
    model = mlp()
    doctor = watch(model)
    with doctor:
        one_step(model)
        with pytest.raises(LessonError, match="already running"), doctor:
            pass
        one_step(model)
    with doctor:
        one_step(model)
    assert doctor._steps == 3 and patches._watchers == 0


def test_somebody_elses_patch_stays():
    """A wrapper that another library put around ours is not thrown away."""
    original = nn.utils.clip_grad.clip_grad_value_
    try:
        with watch(mlp()):
            ours = nn.utils.clip_grad.clip_grad_value_

            def theirs(*args, **kwargs):
                return ours(*args, **kwargs)

            nn.utils.clip_grad.clip_grad_value_ = theirs
        assert nn.utils.clip_grad.clip_grad_value_ is theirs
        weight = nn.Parameter(torch.ones(1))
        weight.grad = torch.full((1,), 5.0)
        theirs([weight], 1.0)
        assert weight.grad.item() == 1.0
    finally:
        nn.utils.clip_grad.clip_grad_value_ = original


# -- threads --------------------------------------------------------------------------------------------------------


def in_thread(function):
    failures = []

    def body():
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            failures.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    if failures:
        raise failures[0]


def test_other_thread_is_not_heard():
    model, told = mlp(), []
    with watch(model) as doctor:
        doctor._observer.wants = lambda module: told.append(module)
        for name in ("before", "after", "failed"):
            setattr(doctor._observer, name, lambda *details: told.append(details))
        in_thread(lambda: one_step(model))
        assert told == []
        one_step(model)
        assert told


def test_two_threads_watch_at_once():
    before, barrier, doctors = patched(), threading.Barrier(2), {}

    def work(seed, clip):
        model = mlp(seed=seed)
        optimizer, scaler = torch.optim.SGD(model.parameters(), 0.01), GradScaler("cpu", init_scale=2.0**10)
        barrier.wait(30)
        with watch(model, optimizer, scaler) as doctors[seed]:
            barrier.wait(30)
            for x, y in batches(10):
                with fp16():
                    loss = F.mse_loss(model(x), y)
                scaler.scale(loss).backward()
                if clip:
                    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                finish(scaler, optimizer)

    threads = [threading.Thread(target=work, args=(seed, seed == 1)) for seed in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert patched() == before and patches._watchers == 0
    assert [f.rule for f in doctors[0].findings if f.severity != "advice"] == []
    assert [f.rule for f in doctors[1].findings if f.severity != "advice"] == ["clip-before-unscale"]
    assert doctors[0]._steps == doctors[1]._steps == 10


# -- size -----------------------------------------------------------------------------------------------------------


def test_memory_is_bounded_over_many_iterations():
    weight = nn.Linear(1, 1)
    optimizer, x = torch.optim.SGD(weight.parameters(), 1e-3), torch.ones(1, 1)
    with watch(weight, optimizer) as doctor:

        def train(steps):
            for _ in range(steps):
                optimizer.zero_grad()
                weight(x).sum().backward()
                optimizer.step()

        train(2000)
        gc.collect()
        tracemalloc.start()
        try:
            train(500)
            gc.collect()
            start, _ = tracemalloc.get_traced_memory()
            train(2500)
            gc.collect()
            end, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        train(15_000)
    observer = doctor._observer
    assert doctor._steps == 20_000
    assert len(observer.recent) <= 8 and len(observer.findings) <= 1 and len(observer._signatures) <= 20
    assert not observer.scaled_nodes and not observer.penalties
    assert end - start < 50_000, "less than 20 bytes a step"


def test_graphs_are_not_kept():
    """A scaled loss holds its whole graph, which holds the activations: after backward nothing may be left of it."""
    import weakref

    class Probe(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.kept = torch.ones(1000)  # what a custom function keeps is freed only with its node
            alive.append(weakref.ref(ctx.kept))
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            return grad

    alive = []
    model, scaler = mlp(), GradScaler("cpu", init_scale=2.0**10)
    with watch(model, None, scaler) as doctor:
        for x, y in batches(5):  # an accumulation: no step ends the iteration
            with fp16():
                loss = F.mse_loss(Probe.apply(model(x)), y)
            scaler.scale(loss).backward()
            del loss
            gc.collect()
        assert sum(ref() is not None for ref in alive) == 0
        assert len(doctor._observer.recent[-1].of("backward")) == 5


def test_models_and_optimizers_of_the_user_are_not_kept_alive():
    import weakref

    from amp_lessons.doctor.script import ScriptDoctor

    with ScriptDoctor() as doctor:
        gone = []
        for seed in range(4):
            model = mlp(seed=seed)
            optimizer = torch.optim.Adam(model.parameters())
            x, y = next(batches(1))
            F.mse_loss(model(x), y).backward()
            optimizer.step()
            gone += [weakref.ref(model), weakref.ref(optimizer), weakref.ref(model[0].weight)]
            del model, optimizer
            gc.collect()
        assert [ref() for ref in gone[:9]] == [None] * 9
    assert not doctor.findings


# -- arguments and report -------------------------------------------------------------------------------------------


def test_steps_ends_the_watch():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    scaler = GradScaler("cpu", init_scale=2.0**10)
    with watch(model, optimizer, scaler, steps=2) as doctor:
        for step, (x, y) in enumerate(batches(5)):
            scaler.scale(forward_loss(model, x, y)).backward()
            if step >= 2:  # a mistake after the watch's end
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            finish(scaler, optimizer)
    assert doctor._steps == 2 and not [f for f in doctor.findings if f.severity != "advice"]
    assert "2 iterations watched" in str(doctor)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("not a model",), "model is a str; watch needs an nn.Module"),
        (([],), "watch needs the model"),
        ((None,), "watch needs the model"),
        ((mlp(), "sgd"), "optimizer is a str"),
        ((mlp(), mlp()), "optimizer is a Sequential"),
        ((mlp(), None, 65536.0), "scaler is a float; watch needs a torch.amp.GradScaler"),
        ((mlp(), None, None, "cosine"), "scheduler is a str"),
        ((mlp(), None, None, None, 0), "steps is 0"),
        (([mlp(), 3],), "model is a int"),
    ],
)
def test_bad_arguments_say_what_is_wrong(arguments, words):
    with pytest.raises(LessonError) as caught:
        watch(*arguments)
    assert words in str(caught.value)
    assert patches._watchers == 0


def test_watch_is_offered_by_the_package():
    from amp_lessons import watch as offered

    assert offered is watch and amp_lessons.watch is watch


FINDINGS = [
    Finding("b-rule", "advice", "1 <b> & 2", "why not", "x = y < z", 3, step=1),
    Finding("a-rule", "error", "norm 968.2", "since </dd>", 'print("a")', 5, step=4),
    Finding("c-rule", "warning", "3", "w", "f", 2, step=0),
]


def test_text_report_has_errors_first():
    lines = as_text(FINDINGS, 7, ["a note"]).splitlines()
    assert lines[0] == "7 iterations watched: 1 error, 1 warning, 1 advice."
    heads = [line for line in lines if "-rule" in line]
    assert heads == ["ERROR a-rule (step 4, lesson 5)", "WARNING c-rule (step 0, lesson 2)", "ADVICE b-rule (step 1, lesson 3)"]
    assert "  seen: norm 968.2" in lines and '  fix:  print("a")' in lines and lines[-1] == "a note"


def test_html_report_is_escaped():
    shown = as_html(FINDINGS, 1, ["<script>"])
    assert shown.startswith("<p>1 iteration watched:") and "<script>" not in shown and "&lt;script&gt;" in shown
    for finding in FINDINGS:
        for text in (finding.evidence, finding.why, finding.fix, finding.rule):
            assert html.escape(text) in shown
    assert "1 <b> & 2" not in shown and shown.index("a-rule") < shown.index("c-rule") < shown.index("b-rule")


def test_empty_report():
    assert as_text([], 1) == "1 iteration watched: no mistake found."
    doctor = watch(mlp())
    assert str(doctor) == repr(doctor) == "0 iterations watched: no mistake found."
    assert doctor._repr_html_() == "<p>0 iterations watched: no mistake found.</p>"
