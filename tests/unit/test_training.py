import math
import random
import warnings
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from amp_lessons import devices, training
from amp_lessons.errors import LessonError
from amp_lessons.gradients import gradients_of
from amp_lessons.history import TrainingHistory
from amp_lessons.problems import Problem, millimetres, portrait
from amp_lessons.recipes import AMP, BF16, FP16, FP32, RECIPES, ScalerOptions
from amp_lessons.training import train

by_recipe = pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)


class Altered(Problem):
    """A problem whose loss first goes through ``change(step, model, loss)``."""

    def loss(self, model, batch):
        self.steps.append(None)
        return self.change(len(self.steps) - 1, model, super().loss(model, batch))


def altered(problem: Problem, change) -> Problem:
    kind = type("Altered", (Altered,), {"change": staticmethod(change), "steps": []})
    return kind(**vars(problem))


def weights(run) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in run.model.parameters()]


def equal(one, other) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


# What a run is


@by_recipe
def test_the_same_seed_gives_the_same_run(tiny, recipe, device):
    runs = [train(tiny, recipe, 12, seed=seed, device=device, activations=True) for seed in (3, 3, 4)]
    one, same, other = (run.finish() for run in runs)
    assert repr(one) == repr(same) and equal(weights(runs[0]), weights(runs[1]))
    assert all(a.histogram == b.histogram and a.activations == b.activations for a, b in zip(one.records, same.records))
    assert one.losses != other.losses
    assert one.stopped is None and [record.step for record in one.records] == list(range(12))
    assert (one.problem, one.recipe, one.seed, one.device) == (
        "millimetres",
        recipe.name,
        3,
        devices.describe(device),
    )


def test_fp32_is_bitwise_the_plain_loop(tiny, device):
    run = train(tiny, FP32, 15, seed=7, device=device)
    history = run.finish()

    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = tiny.make_model().to(device)
    problem, batches = tiny.to(device), torch.Generator().manual_seed(7)
    optimizer = torch.optim.Adam(model.parameters(), lr=tiny.learning_rate)
    losses = []
    with devices.one_thread(device):
        for _ in range(15):
            inputs, targets = problem.batch(batches)
            optimizer.zero_grad()
            loss = F.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert history.losses == losses
    assert equal(weights(run), [parameter.detach() for parameter in model.parameters()])
    assert all((record.scale, record.next_scale, record.skipped) == (1, 1, False) for record in history.records)


@by_recipe
def test_recording_changes_nothing(tiny, recipe, device):
    plain, watched = train(tiny, recipe, 6, device=device, histograms=False), train(tiny, recipe, 6, device=device, activations=True)
    assert plain.finish().losses == watched.finish().losses
    assert equal(weights(plain), weights(watched))
    assert all((r.grad_norm, r.histogram, r.activations) == (None, None, None) for r in plain.history.records)
    count = sum(parameter.numel() for parameter in watched.model.parameters())
    assert [record.histogram.total for record in watched.history.records] == [count] * 6
    assert [record.activations.total for record in watched.history.records] == [64 * (6 * 64 + 1)] * 6
    assert all(r.grad_norm > 0 for r in watched.history.records)
    assert not any(module._forward_hooks for module in watched.model.modules())  # taken off at the end


def test_the_record_is_of_unscaled_gradients_before_clipping(tiny, device):
    by_scale = [
        train(tiny, AMP, 1, device=device, scaler=ScalerOptions(init_scale=scale), activations=True, max_norm=1e-6).finish()
        for scale in (2.0**14, 2.0**18)
    ]
    low, high = (history.records[0] for history in by_scale)
    fp32 = train(tiny, FP32, 1, device=device).finish().records[0]
    for record in (low, high):
        assert record.grad_norm == pytest.approx(fp32.grad_norm, rel=1e-2)
        assert record.grad_norm > 1e-6
        assert max(record.histogram.binades()) == max(fp32.histogram.binades())
    # Activation gradients pass while they are multiplied by the scale.
    assert max(high.activations.binades()) == max(low.activations.binades()) + 4


def test_clipping_bounds_what_the_optimizer_gets(tiny, device):
    run = train(tiny, AMP, 3, device=device, max_norm=1e-4)
    norms = []
    run.optimizer.register_step_pre_hook(
        lambda *_: norms.append(torch.nn.utils.get_total_norm(gradients_of(run.model)).item())
    )
    history = run.finish()
    assert norms == pytest.approx([1e-4] * 3, rel=1e-2)
    assert all(record.grad_norm > 1e-3 for record in history.records)


def test_own_loss_weight_and_learning_rate(tiny, device):
    plain = train(tiny, FP32, 1, device=device).finish()
    weighted = train(tiny, FP32, 1, device=device, loss_weight=0.25).finish()
    assert weighted.losses[0] == plain.losses[0] / 4
    assert train(tiny, FP32, 1, device=device, learning_rate=0.5).optimizer.param_groups[0]["lr"] == 0.5
    assert tiny.loss_weight == 1


def test_iterating_gives_the_records(tiny):
    run = train(tiny, FP32, 4)
    assert not run.over
    first = next(run)
    assert [first, *run] == run.history.records
    assert run.over and next(run, None) is None
    assert run.finish() is run.history


# The scaler


@pytest.mark.parametrize(
    "options",
    [
        ScalerOptions(init_scale=2.0**40, growth_interval=3),
        ScalerOptions(init_scale=2.0**30, growth_factor=4.0, backoff_factor=0.25, growth_interval=2),
        ScalerOptions(init_scale=2.0**16, growth_interval=1),
        ScalerOptions(init_scale=1000.1, growth_interval=5),
    ],
)
def test_the_scale_follows_the_documented_rule(tiny, device, options):
    run = train(tiny, AMP, 30, device=device, scaler=options)
    scale, clean = float(torch.tensor(options.init_scale)), 0
    before = weights(run)
    for record in run:
        overflowed = record.histogram.infinities + record.histogram.nans > 0
        if overflowed:
            expected, clean = scale * options.backoff_factor, 0
        else:
            expected, clean = scale, clean + 1
            if clean == options.growth_interval:
                expected, clean = scale * options.growth_factor, 0
        assert (record.scale, record.next_scale) == pytest.approx((scale, expected), rel=1e-6)
        assert record.skipped == overflowed == equal(before, weights(run))
        assert record.grew == (expected > scale)
        assert overflowed == (not math.isfinite(record.grad_norm))
        scale, before = record.next_scale, weights(run)
    assert run.history.scales == [record.scale for record in run.history.records]


def test_too_high_a_first_scale_halves_until_it_fits(tiny, device):
    history = train(tiny, AMP, 30, device=device, scaler=ScalerOptions(init_scale=2.0**40)).finish()
    fits = history.records[-1].scale
    skips = int(40 - math.log2(fits))
    assert history.skipped == list(range(skips)) and skips > 5
    assert history.scales[: skips + 1] == [2.0 ** (40 - k) for k in range(skips + 1)]
    assert history.grown == [] and history.stopped is None


def test_the_default_scale_needs_no_skip(tiny, device):
    history = train(tiny, AMP, 10, device=device).finish()
    assert history.scales == [65536.0] * 10 and history.skipped == []


# What a run leaves alone


@by_recipe
def test_global_state_is_left_alone(tiny, recipe, device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda seed: pytest.fail("the GPUs were seeded"))
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    torch.default_generator.manual_seed(4321)  # a state that no run leaves behind by chance
    try:

        def state():
            cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
            return (
                torch.get_rng_state().tolist(),
                [one.tolist() for one in cuda],
                random.getstate(),
                torch.get_num_threads(),
                torch.get_default_dtype(),
                torch.is_autocast_enabled("cpu"),
                torch.get_autocast_dtype("cpu"),
                torch.is_autocast_enabled("cuda"),
                torch.get_autocast_dtype("cuda"),
                torch.is_grad_enabled(),
                torch.are_deterministic_algorithms_enabled(),
            )

        before = state()
        run = train(tiny, recipe, 3, device=device)
        next(run)
        assert state() == before  # between two steps, too
        run.finish()
        assert state() == before
    finally:
        torch.set_num_threads(threads)


def test_steps_on_the_cpu_use_one_thread(tiny):
    threads, seen = torch.get_num_threads(), []

    def look(step, model, loss):
        seen.append(torch.get_num_threads())
        return loss

    torch.set_num_threads(3)
    try:
        train(altered(tiny, look), FP32, 2, device="cpu").finish()
        assert seen == [1, 1] and torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)


@by_recipe
def test_no_recipe_warns(tiny, recipe, device):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(tiny, recipe, 2, device=device, activations=True, max_norm=1.0).finish()


# How a run can end


def test_nan_in_the_data_ends_an_amp_run_when_the_scale_falls_under_one(tiny, device):
    run = train(replace(tiny, targets=tiny.targets * math.nan), AMP, 100, device=device)
    before = weights(run)
    history = run.finish()
    assert history.scales == [2.0**k for k in range(16, -1, -1)]
    assert history.skipped == list(range(17))
    assert history.records[-1].next_scale == 0.5
    assert history.stopped.startswith("The loss scale fell under 1 in step 16: the loss itself was already nan in step 0.")
    assert equal(before, weights(run))  # GradScaler would go on to 0 and then write NaN into the weights


def test_the_first_bad_loss_is_named(tiny, device):
    bad = altered(tiny, lambda step, model, loss: loss * (math.inf if step >= 3 else 1))
    history = train(bad, AMP, 100, device=device).finish()
    assert len(history.records) == 20
    assert "in step 19: the loss itself was already inf in step 3." in history.stopped


def test_gradients_that_overflow_at_every_scale_are_told_from_a_bad_loss(tiny, device):
    def root_of_zero(step, model, loss):  # finite, with an infinite derivative
        return loss + sum((parameter * 0).sum() for parameter in model.parameters()).abs().sqrt()

    history = train(altered(tiny, root_of_zero), AMP, 100, device=device).finish()
    assert len(history.records) == 17 and all(math.isfinite(loss) for loss in history.losses)
    assert "fell under 1 in step 16: the loss was finite, so the gradients overflow at every scale." in history.stopped


def test_a_bad_loss_long_ago_is_not_the_cause(tiny, device):
    def nan_once_then_root_of_zero(step, model, loss):
        if step == 1:
            return loss * math.nan
        return loss + sum((parameter * 0).sum() for parameter in model.parameters()).abs().sqrt() if step > 3 else loss

    history = train(altered(tiny, nan_once_then_root_of_zero), AMP, 100, device=device).finish()
    assert history.skipped == [1, *range(4, 20)]
    assert "fell under 1 in step 19: the loss was finite" in history.stopped


def test_one_bad_batch_is_skipped_and_training_goes_on(tiny, device):
    bad = altered(tiny, lambda step, model, loss: loss * (math.nan if step == 2 else 1))
    history = train(bad, AMP, 6, device=device).finish()
    assert history.stopped is None and history.skipped == [2]
    assert [math.isfinite(loss) for loss in history.losses] == [True, True, False, True, True, True]


def test_a_scale_of_exactly_one_goes_on(tiny, device):
    bad = altered(tiny, lambda step, model, loss: loss * (math.nan if step == 0 else 1))
    history = train(bad, AMP, 3, device=device, scaler=ScalerOptions(init_scale=2.0)).finish()
    assert history.stopped is None and history.scales == [2.0, 1.0, 1.0]


@pytest.mark.parametrize("recipe", [FP32, FP16, BF16], ids=lambda recipe: recipe.name)
def test_without_a_scaler_the_first_bad_loss_ends_the_run(tiny, recipe, device):
    bad = altered(tiny, lambda step, model, loss: loss * (math.nan if step == 2 else 1))
    history = train(bad, recipe, 10, device=device).finish()
    assert len(history.records) == 3
    assert history.stopped.startswith("The loss is nan in step 2 and no later step can mend it")


def test_a_stopped_history_saves_and_loads(tiny, tmp_path, device):
    history = train(replace(tiny, targets=tiny.targets * math.nan), AMP, 100, device=device, activations=True).finish()
    again = TrainingHistory.load(history.save(tmp_path / "run.json"))
    assert repr(again) == repr(history) and again.stopped == history.stopped
    assert again.records[5].activations == history.records[5].activations


def real_out_of_memory(device: torch.device) -> Exception:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**55, device=device, dtype=torch.uint8)
    return caught.value


def test_running_out_of_memory_ends_the_run_with_a_sentence(tiny, device):
    def grow(step, model, loss):
        return loss + torch.empty(2**55, device=device, dtype=torch.uint8).sum() if step == 2 else loss

    run = train(altered(tiny, grow), AMP, 10, device=device, activations=True)
    assert len(list(run)) == 2  # a plain loop just ends
    assert run.history.stopped.startswith("Memory ran out in step 2; use a smaller batch or picture")
    assert not any(module._forward_hooks for module in run.model.modules())
    assert next(run, None) is None


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."),
        RuntimeError("CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:83] data. DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."),
        MemoryError(),
    ],
    ids=lambda error: f"{type(error).__name__} {str(error)[:20]}",
)
def test_every_way_of_running_out_of_memory(tiny, monkeypatch, error):
    run = train(tiny, FP32, 10)
    next(run)

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(training, "training_step", fail)
    history = run.finish()
    assert len(history.records) == 1 and history.stopped.startswith("Memory ran out in step 1;")

    monkeypatch.setattr(Problem, "to", fail)
    with pytest.raises(LessonError, match="There is no memory left for the run on cpu; use a smaller batch"):
        train(tiny, FP32, 10, device="cpu")


def test_the_allocators_own_error_is_known(device):
    assert training._is_out_of_memory(real_out_of_memory(device))


def test_another_error_is_not_swallowed(tiny, monkeypatch):
    def fail(step, model, loss):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    run = train(altered(tiny, fail), FP32, 10)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        run.finish()
    assert run.history.stopped is None

    monkeypatch.setattr(Problem, "to", lambda *_: fail(0, None, None))
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        train(tiny, FP32, 10)


def test_an_interrupt_keeps_the_history(tiny, device):
    def interrupt(step, model, loss):
        if step == 5:
            raise KeyboardInterrupt
        return loss

    run = train(altered(tiny, interrupt), AMP, 10, device=device, activations=True)
    history = run.finish()
    assert len(history.records) == 5
    assert history.stopped == "Interrupted after 5 steps."
    assert run.over and next(run, None) is None
    assert not any(module._forward_hooks for module in run.model.modules())


@by_recipe
def test_an_interrupted_loop_can_go_on(tiny, recipe, device, monkeypatch):
    run = train(tiny, recipe, 8, device=device, scaler=ScalerOptions(growth_interval=3), activations=True)
    for _ in range(4):
        next(run)
    before = weights(run)
    norm, state = torch.nn.utils.get_total_norm, run.scaler.state_dict()

    def interrupt(*_):  # after unscale_ and before update, where a scaler cannot take a second unscale_
        raise KeyboardInterrupt

    monkeypatch.setattr(torch.nn.utils, "get_total_norm", interrupt)
    with pytest.raises(KeyboardInterrupt):
        next(run)
    assert not run.over and len(run.history.records) == 4
    assert gradients_of(run.model) == []  # nothing left to add to the next step's
    assert run.scaler.state_dict() == state
    assert equal(before, weights(run))

    monkeypatch.setattr(torch.nn.utils, "get_total_norm", norm)
    history = run.finish()
    assert history.stopped is None and [record.step for record in history.records] == list(range(8))
    assert {record.activations.total for record in history.records} == {64 * (6 * 64 + 1)}
    if recipe.uses_scaler:
        assert history.grown == [2, 5]


@pytest.mark.parametrize("steps", [0, -1])
def test_no_steps(tiny, steps):
    with pytest.raises(LessonError, match=f"steps is {steps}; a run needs at least one step."):
        train(tiny, FP32, steps)


@pytest.mark.parametrize("name", ["loss_weight", "learning_rate", "max_norm"])
@pytest.mark.parametrize("value", [0, -1.0, math.inf, math.nan])
def test_arguments_that_cannot_work(tiny, name, value):
    with pytest.raises(LessonError, match=f"^{name} is {value}; give a number above 0.$"):
        train(tiny, FP32, 1, **{name: value})


def test_cuda_where_there_is_none(tiny, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(LessonError, match="no CUDA device here; leave device out and the same loop runs on the CPU"):
        train(tiny, AMP, device="cuda")
    assert train(tiny, AMP, 1).device == torch.device("cpu")


# What the lessons promise


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def promised(request) -> dict:
    """The shipped runs of both problems, each trained once: quality by (problem, loss weight, recipe, seed)."""
    quality = {}
    for weight, recipes, seeds in ((2.0**-10, (FP32, FP16, AMP), (0, 1, 2)), (1.0, RECIPES, (0,))):
        problem = portrait(loss_weight=weight)
        for recipe in recipes:
            for seed in seeds:
                run = train(problem, recipe, seed=seed, device=request.param, histograms=False)
                assert run.finish().stopped is None
                quality[problem.name, weight, recipe, seed] = problem.psnr(run.model)
    problem = millimetres()
    for recipe in (FP32, FP16, AMP):
        run = train(problem, recipe, device=request.param, histograms=False)
        assert run.finish().stopped is None
        quality[problem.name, 1.0, recipe, 0] = problem.relative_error(run.model)
    return quality


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_portrait_with_a_small_loss_weight_needs_the_scaler(promised, seed):
    fp32, fp16, amp = (promised["portrait", 2.0**-10, recipe, seed] for recipe in (FP32, FP16, AMP))
    assert fp32 > 28  # it is a picture at all
    assert abs(amp - fp32) <= 1
    assert fp16 <= fp32 - 5


def test_portrait_at_loss_weight_one_needs_nothing(promised):
    quality = [promised["portrait", 1.0, recipe, 0] for recipe in RECIPES]
    assert max(quality) - min(quality) <= 1
    assert min(quality) > 28


def test_millimetres_need_the_scaler(promised):
    fp32, fp16, amp = (promised["millimetres", 1.0, recipe, 0] for recipe in (FP32, FP16, AMP))
    assert fp32 < 0.02  # learned: the mean would give 1
    assert fp16 >= 2 * fp32
    assert amp == pytest.approx(fp32, rel=0.1)
