"""The course's experiments at a GPU's size, or at a CPU's: each takes a device and seconds, and gives plain values."""

from __future__ import annotations

import base64
import io
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from amp_lessons import devices
from amp_lessons.counting import KEYS, count_into
from amp_lessons.gradients import GradientRecorder, gradients_of
from amp_lessons.measure import ops
from amp_lessons.measure.clock import Subject, interleaved
from amp_lessons.measure.memory import memory_split
from amp_lessons.measure.plain import to_plain
from amp_lessons.measure.settings import Setting, settings_for
from amp_lessons.measure.steps import TrainingStep, speed_table
from amp_lessons.measure.workloads import Workload, mlp, transformer
from amp_lessons.problems import portrait
from amp_lessons.recipes import AMP, RECIPES, ScalerOptions
from amp_lessons.training import TrainingRun, train

THUMBNAIL = 96  # pixels: small enough that eight portraits weigh little in a file that git keeps


@dataclass(frozen=True)
class Experiment:
    """One part of a recording: ``run(device, seconds)`` gives plain values within about that time."""

    name: str
    seconds: float
    run: Callable[[torch.device, float], Any]


def portraits(device: torch.device, seconds: float, large: bool = False) -> list[dict[str, Any]]:
    """The portrait by the four recipes at a loss weight of 1, all pixels in each step.

    The mean over a large picture alone makes gradients small: at 512 x 512 pixels each of 786,432 outputs has a share. The
    four train in turns, so that they have done equally many steps when the time is up.
    """
    size = (64, 96)[large] if device.type == "cpu" else (512, 1024)[large]
    problem = replace(portrait(size), batch_size=size * size)
    runs = [train(problem, recipe, steps=300, device=device) for recipe in RECIPES]
    results = []
    for run, trained in zip(runs, _trained(runs, seconds)):
        picture = problem.picture(run.model)
        looks = {"psnr_db": number(problem.psnr_of(picture)), "picture_png": _thumbnail(picture)}
        results.append({"size": size, "recipe": run.recipe.name, **trained, **looks})
    return results


def scale_history(device: torch.device, seconds: float) -> dict[str, Any]:
    """The portrait by AMP from a scale that is too high: overflows, skipped steps, then growth."""
    options = ScalerOptions(init_scale=2.0**40, growth_interval=25)
    run = train(portrait(), AMP, steps=300, device=device, scaler=options)
    (trained,) = _trained([run], seconds)
    records = run.history.records
    rows = [{"step": r.step, "scale": r.scale, "next_scale": r.next_scale, "skipped": r.skipped} for r in records]
    return {"init_scale": options.init_scale, "growth_interval": options.growth_interval, **trained, "records": rows}


def mlp_speed(device: torch.device, seconds: float) -> dict[str, Any]:
    """Step times of an MLP over widths and batches."""
    if device.type == "cpu":
        widths, batches = (64, 128, 256, 512), (16, 64, 256)
    else:
        widths, batches = (256, 512, 1024, 2048, 4096), (64, 256, 1024, 4096)
    settings = settings_for(device, without_scaler=True)
    return to_plain(speed_table(mlp, widths, batches, settings, device, runs=15, budget_s=seconds))


def transformer_speed(device: torch.device, seconds: float) -> dict[str, Any]:
    """Step times of a transformer over widths and batches."""
    widths, batches = ((64, 128), (4, 16)) if device.type == "cpu" else ((256, 512, 1024), (4, 16, 64))
    settings = settings_for(device, without_scaler=True)
    return to_plain(speed_table(_transformer_on(device), widths, batches, settings, device, runs=15, budget_s=seconds))


def memory(device: torch.device, seconds: float) -> list[dict[str, Any]]:
    """Weights, gradients, optimizer state and activations of both models by setting, with a small and a large batch."""
    end = time.perf_counter() + seconds
    on_cpu = device.type == "cpu"
    make = _transformer_on(device)
    works = [mlp(*size) for size in (((256, 16), (256, 1024)) if on_cpu else ((2048, 64), (2048, 8192)))]
    works += [make(*size) for size in (((64, 1), (64, 16)) if on_cpu else ((512, 1), (512, 32)))]
    splits = []
    for work in works:
        for setting in settings_for(device):
            if time.perf_counter() < end:
                splits.append(memory_split(work, setting, device))
    return to_plain(splits)


def matmuls(device: torch.device, seconds: float) -> dict[str, Any]:
    """Products by size and dtype, products around a multiple of 8, additions and a copy: the material of a roofline."""
    on_cpu = device.type == "cpu"
    sizes = [2**k for k in (range(4, 11) if on_cpu else range(6, 14))]
    centre = 128 if on_cpu else 1024
    copy = ops.copy_speed(device, mebibytes=64 if on_cpu else 512, budget_s=max(1.0, 0.1 * seconds))
    return {
        "matmul": to_plain(ops.matmul_speeds(sizes, device=device, runs=15, budget_s=0.5 * seconds)),
        "around": to_plain(ops.matmul_speeds(ops.sizes_around(centre), device=device, runs=15, budget_s=0.3 * seconds)),
        "add": to_plain(ops.add_speeds((1024, 4096), device=device, budget_s=0.1 * seconds)),
        "copy": to_plain(copy),
    }


def recorder_cost(device: torch.device, seconds: float) -> list[dict[str, Any]]:
    """A training step alone, with its gradients counted into one kept table, and with a histogram read out each step."""
    works = [mlp(512, 256), _transformer_on(device)(128, 8)]
    results = []
    for work in works:
        fp32: Setting = settings_for(device)[0]
        step = TrainingStep(work, fp32, device)
        calls = {"bare": step, **_recorded_ways(step)}
        subjects = {name: Subject(call, fp32.around) for name, call in calls.items()}
        times = interleaved(subjects, device, runs=40, budget_s=seconds / len(works))
        parameters = sum(p.numel() for p in step.model.parameters())
        results.append({"workload": work.name, "width": work.width, "batch": work.batch, "parameters": parameters})
        results[-1] |= {name: to_plain(timing) for name, timing in times.items()}
    return results


def _recorded_ways(step: TrainingStep) -> dict[str, Callable[[], object]]:
    table = torch.zeros(KEYS, dtype=torch.int64, device=step.device)
    recorder = GradientRecorder(step.model)
    return {
        "counted": lambda: step(on_gradients=lambda: count_into(table, *gradients_of(step.model))),
        "read_out": lambda: step(on_gradients=recorder.parameters),
    }


def profile(device: torch.device, seconds: float) -> list[dict[str, Any]]:
    """The ops and kernels that take most of a transformer's step, by torch.profiler, in FP32 and under AMP."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    work = _transformer_on(device)(*((64, 8) if device.type == "cpu" else (512, 16)))
    end = time.perf_counter() + seconds
    results = []
    for setting in settings_for(device):
        step = TrainingStep(work, setting, device)
        with setting.around(), devices.one_thread(device):
            step()
            steps = 0
            with profiler(activities=activities) as seen:
                while steps < 5 and (steps == 0 or time.perf_counter() < end):
                    step()
                    steps += 1
                if device.type == "cuda":
                    torch.cuda.synchronize(device)
        results.append({"setting": setting.name, "workload": work.name, "steps": steps, "ops": _largest(seen, device)})
    return results


EXPERIMENTS = (
    Experiment("portraits", 30, portraits),
    Experiment("large_portraits", 50, partial(portraits, large=True)),  # apart, as it may be too much for a small GPU
    Experiment("scale_history", 12, scale_history),
    Experiment("mlp_speed", 30, mlp_speed),
    Experiment("transformer_speed", 30, transformer_speed),
    Experiment("memory", 12, memory),
    Experiment("matmuls", 25, matmuls),
    Experiment("recorder_cost", 10, recorder_cost),
    Experiment("profile", 10, profile),
)


def number(value: float) -> float | str:
    """A finite number in six digits, others as text: JSON has no inf and no NaN."""
    return float(f"{value:.6g}") if math.isfinite(value) else str(value)


def _transformer_on(device: torch.device) -> Callable[[int, int], Workload]:
    if device.type == "cpu":
        return transformer
    return lambda width, batch: transformer(width, batch, layers=4, length=256, vocabulary=4096)


def _trained(runs: Sequence[TrainingRun], seconds: float) -> list[dict[str, Any]]:
    """Run all to their ends in turns, or until the time is up, and give what lessons draw of each."""
    end = time.perf_counter() + seconds
    used = [0.0] * len(runs)
    while not all(run.over for run in runs):
        for at, run in enumerate(runs):
            start = time.perf_counter()
            next(run, None)
            used[at] += time.perf_counter() - start
        if time.perf_counter() > end:
            break
    return [
        {
            "steps_wanted": run.steps,
            "steps": len(run.history.records),
            "stopped": run.history.stopped or (None if run.over else "the time for it was up"),
            "seconds": number(seconds_used),
            "losses": [number(loss) for loss in run.history.losses],
            "skipped": run.history.skipped,
            "last_scale": run.history.records[-1].next_scale if run.history.records else None,
            "last_histogram": run.history.records[-1].histogram.to_json() if run.history.records else None,
        }
        for run, seconds_used in zip(runs, used)
    ]


def _thumbnail(picture: Tensor) -> str:
    """A picture [rows, columns, 3] of values from 0 to 1 as a small PNG in base64."""
    from PIL import Image

    small = torch.nn.functional.interpolate(picture.permute(2, 0, 1)[None], (THUMBNAIL, THUMBNAIL), mode="area")[0]
    pixels = (small.nan_to_num().clamp(0, 1) * 255).round().byte().permute(1, 2, 0).contiguous().numpy()
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "png", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def _largest(seen: Any, device: torch.device, count: int = 12) -> list[dict[str, Any]]:
    rows = [
        {
            "name": event.key[:120],
            "calls": event.count,
            "self_cpu_us": number(event.self_cpu_time_total),
            "self_device_us": number(event.self_device_time_total),
        }
        for event in seen.key_averages()
    ]
    by = "self_device_us" if device.type == "cuda" else "self_cpu_us"
    return sorted(rows, key=lambda row: row[by], reverse=True)[:count]
