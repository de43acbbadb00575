"""PyTorch's own error texts in mixed-precision loops, and the likely cause of each in one sentence."""

from __future__ import annotations

import re

# Texts as torch 2.13 writes them; older ones that differ only in the middle match too.
CAUSES: tuple[tuple[str, str], ...] = (
    (
        r"Attempting to unscale FP16 gradients",
        "some parameters are float16 themselves; keep the model in float32 (no .half()) and let autocast choose the dtypes.",
    ),
    (
        r"unscale_\(\) has already been called on this optimizer",
        "unscale_ ran twice before update(); call it once, right before the optimizer's step, and call update() in every "
        "iteration that called it.",
    ),
    (
        r"unscale_\(\) is being called after step\(\)",
        "unscale_ and clipping belong before scaler.step(optimizer), not after it.",
    ),
    (
        r"step\(\) has already been called since the last update\(\)",
        "scaler.update() was not called after the last scaler.step(optimizer).",
    ),
    (
        r"No inf checks were recorded for this optimizer",
        "none of this optimizer's parameters has a gradient: the loss does not reach them, or zero_grad() ran between "
        "backward() and step().",
    ),
    (
        r"No inf checks were recorded prior to update",
        "scaler.update() ran without a scaler.step(optimizer) before it.",
    ),
    (
        r"unsafe to autocast",
        "binary_cross_entropy needs probabilities that fp16 cannot hold near 0 and 1; use binary_cross_entropy_with_logits on "
        "the raw outputs.",
    ),
    (
        # With a 16-bit dtype in it: the same words also come from mistakes that have nothing to do with mixed precision.
        r"^(?=.*(Half|BFloat16)).*(must have the same dtype|to have (the )?same dtype|expected scalar type|Input type .* should be the same"
        r"|dtypes match)",
        "a 16-bit tensor met a float32 one outside the autocast region; write .float() where it leaves the region, or use "
        "torch.amp.custom_fwd and custom_bwd if it is a torch.autograd.Function of your own.",
    ),
    (
        r"value cannot be converted to type (c10::|at::)?Half without overflow",
        "a constant such as -1e9 is beyond float16's 65504; use torch.finfo(scores.dtype).min or float('-inf').",
    ),
    (
        r"The source state dict is empty",
        "the checkpoint was saved from a disabled GradScaler; load it only if it is not empty.",
    ),
    (
        r"_amp_foreach_non_finite_check_and_unscale\w*\" not implemented for 'BFloat16'",
        "the gradients are bfloat16, which GradScaler does not take on CUDA; bf16 needs no scaler.",
    ),
    (
        r"element 0 of tensors does not require grad",
        "the loss has no graph: it was computed under no_grad, detached, or from parameters that are frozen.",
    ),
    (
        r"could not create a primitive descriptor for the LSTM",
        "nn.LSTM does not run in float16 on the CPU; use bfloat16 there, or leave the LSTM out of the autocast region.",
    ),
    (
        r"gradients .*is non-finite, so it cannot be clipped",
        "clip_grad_norm_(error_if_nonfinite=True) raises on an overflow that GradScaler would have skipped; leave the option out.",
    ),
    (
        r"Attempted (step|unscale_|update) but _scale is None",
        "scaler.scale(loss).backward() has not run: the loss went backward without the scaler.",
    ),
    (
        r"Got unsupported ScalarType BFloat16",
        "NumPy has no bfloat16; write .float() before .numpy().",
    ),
    (
        r"Closure use is not currently supported",
        "GradScaler cannot step an optimizer with a closure (LBFGS); use FP32 or BF16 for it.",
    ),
)


def cause_of(error: BaseException) -> str | None:
    """The likely cause of an error in a mixed-precision loop, one sentence; None for an error that is not known."""
    return next((cause for pattern, cause in CAUSES if re.search(pattern, str(error), re.DOTALL)), None)
