"""The quick checks of all lessons, by name: a lesson shows the question, and the answers are not beside it in the code."""

from __future__ import annotations

from amp_lessons.errors import LessonError
from amp_lessons.tutor.quiz import Answer, Question

_QUESTIONS: dict[str, tuple[str, tuple[Answer, ...]]] = {
    "1-bf16": (
        "fp16 and bf16 both take 16 bits. What does bf16 do better?",
        (
            Answer("It stores digits more exactly", "The other way round: fp16 has 11 significant bits, bf16 has 8."),
            Answer("It reaches further, down and up", "It has float32's 8 exponent bits, so float32's range.", correct=True),
            Answer("It takes less memory", "Both take two bytes a number."),
        ),
    ),
    "1-memory": (
        "You train with Adam and switch on mixed precision. Which of these takes about half the memory?",
        (
            Answer("The weights", "They stay in float32, or small updates would vanish; a 16-bit copy even comes on top."),
            Answer("The optimizer's state", "Adam's two averages stay in float32, like the weights they belong to."),
            Answer("The activations kept for backward", "They are outputs of 16-bit operations.", correct=True),
        ),
    ),
    "1-products": (
        "Why can matrix products run in 16 bits when adding 1 three thousand times in fp16 sticks at 2048?",
        (
            Answer("They round to more digits at the end", "The result has fp16's digits too; it is the sum inside that is kept better."),
            Answer("The sum inside is kept in float32", "Only the inputs and the final result are 16-bit.", correct=True),
            Answer("They never add that many terms", "They do: a product of 4096 columns adds 4096 terms for each result."),
        ),
    ),
    "2-floor": (
        "A gradient of 2^-25 is stored in fp16. What is stored?",
        (
            Answer("2^-25", "fp16's smallest positive number is 2^-24, so 2^-25 has to be rounded."),
            Answer("2^-24", "The next float32 value above 2^-25 goes there; 2^-25 itself is a tie and does not."),
            Answer("0", "2^-25 is half way between 0 and 2^-24, and the tie goes to the even one, 0.", correct=True),
            Answer("Nothing: PyTorch raises an error", "Underflow is silent, which is why a stalled run is hard to explain."),
        ),
    ),
    "2-zeros": (
        "Under fp16 autocast 30% of your parameter gradients are zero. How many did fp16 flush?",
        (
            Answer("30%", "Some may come from ReLUs that are off; float32 would have those zeros too."),
            Answer("None, since .grad is float32", "The values went through fp16: the box is float32, the value is not."),
            Answer("Only a paired float32 run can tell", "Lost is what is zero here and not zero there.", correct=True),
        ),
    ),
    "2-remedy": (
        "The loss stops falling under fp16 autocast because the gradients are below the floor. What helps?",
        (
            Answer("A larger learning rate", "It multiplies gradients that are already 0."),
            Answer("A larger loss before backward", "All gradients grow by the same factor and clear the floor.", correct=True),
            Answer("Converting .grad to float32", ".grad is float32 already; the value was lost before it got there."),
        ),
    ),
    "3-softmax": (
        "Inside a CUDA fp16 region, a linear layer's output goes through torch.softmax. Which dtype comes out?",
        (
            Answer(
                "float16, as on the CPU", "On the CPU, yes; CUDA has its own list of ops, and softmax is on its float32 side."
            ),
            Answer("float32", "The linear layer gave float16, and CUDA's autocast lifts softmax to float32.", correct=True),
            Answer("It depends on the weights' dtype", "The weights are float32 anyway; the choice goes by the op."),
        ),
    ),
    "3-region": (
        "Which lines of a training step belong inside the autocast region?",
        (
            Answer("The forward pass only", "Then the loss is computed in whatever dtype comes out, often float16."),
            Answer("The forward pass and the loss", "Backward ops take their dtypes from the forward ops.", correct=True),
            Answer("Forward, loss and backward", "Backward gains nothing in there, and the documentation advises against it."),
            Answer("The whole training loop", "Then the weights' cast copies are never renewed: you saw the loss stand still."),
        ),
    ),
    "3-update": (
        "A weight of 1 is stored in fp16 and gets an update of +0.0004 in each step. What is it after 1,000 steps?",
        (
            Answer("1.4", "That is float32's answer. fp16 rounds after every step, not once at the end."),
            Answer("Still 1", "0.0004 is under half of fp16's spacing above 1 (2^-11, about 0.00049).", correct=True),
            Answer("inf", "Nothing here is large; 1.0004 is rounded to the nearest fp16 number."),
        ),
    ),
    "4-vanishing": (
        "Which tool keeps small gradients from vanishing under fp16 autocast?",
        (
            Answer("autocast itself", "It chooses the dtypes; in fp16 the small gradients are flushed."),
            Answer("GradScaler", "It scales the loss before backward and unscales before the step.", correct=True),
            Answer("A larger batch", "The mean over a larger batch makes each example's gradient smaller, not larger."),
        ),
    ),
    "4-overflow": (
        "A gradient is inf after the scaled backward. What do step and update do?",
        (
            Answer("Clip it and go on", "There is nothing to clip: inf has lost its size. The step is skipped."),
            Answer("Skip the step and lower the scale", "The weights stay, and the next step has more room.", correct=True),
            Answer("Raise an error", "Overflow is part of finding the scale, so there is none."),
            Answer("Skip the step and raise the scale", "A larger scale would overflow more."),
        ),
    ),
    "4-collapse": (
        "The scale fell from 65,536 to 1 in 16 steps. What do you look at first?",
        (
            Answer("Whether the loss is finite", "NaN or inf that is there at every scale comes before the scaler.", correct=True),
            Answer("A larger init_scale", "It would fall all the same, a few steps later."),
            Answer("A longer growth interval", "The scale does not grow here; it falls in every step."),
        ),
    ),
    "5-order": (
        "Where does gradient clipping belong in the AMP step?",
        (
            Answer(
                "Between backward() and unscale_()",
                "There the gradients are still multiplied by the loss scale, so the clip cuts too far.",
            ),
            Answer(
                "Between unscale_() and step()", "The gradients have their true size, and have not been used yet.", correct=True
            ),
            Answer("Between step() and update()", "The optimizer has already used the gradients: nothing is clipped in time."),
            Answer(
                "Nowhere: the scaler's skip replaces it",
                "The skip catches inf and NaN only; clipping limits large but finite gradients.",
            ),
        ),
    ),
    "5-accumulation": (
        "You accumulate over 4 micro-batches. How often do you call scaler.update()?",
        (
            Answer(
                "After each micro-batch",
                "The scale could change in between, and the sum of the parts could not be unscaled by one number.",
            ),
            Answer("Once, after the step", "All four parts share one scale, and one step is counted.", correct=True),
            Answer(
                "Never: accumulation keeps the scale",
                "Without update() the next step() raises an error, and the scale could never adapt.",
            ),
        ),
    ),
    "5-resume": (
        "A run is resumed from a checkpoint without the scaler's state. Its scale had settled at 2^8. What happens?",
        (
            Answer("Nothing: the scale is saved with the model", "The model's state_dict knows nothing of the scaler."),
            Answer(
                "It starts at 2^16 and skips steps until the scale fits again",
                "A new scaler begins with its defaults and an empty growth count.",
                correct=True,
            ),
            Answer("Loading fails", "PyTorch cannot know that something is missing: there is no message."),
        ),
    ),
    "6-memory": (
        "You switch on AMP, and the memory of a step hardly falls. What is the likely reason?",
        (
            Answer("GradScaler keeps a scaled copy of each gradient", "It scales the loss and divides the gradients in place."),
            Answer(
                "Weights, gradients and the optimizer's state are most of it",
                "They stay in float32. Only the activations shrink, and they grow with the batch.",
                correct=True,
            ),
            Answer("autocast keeps the activations in float32", "What a 16-bit operation gives is kept in 16 bits."),
        ),
    ),
    "6-clock": (
        "On a GPU you put time.perf_counter() before and after a training step, and do not synchronise. What have you timed?",
        (
            Answer("The arithmetic of the step", "Kernels run on after the call that launched them has returned."),
            Answer("Mostly the time to queue the work", "So FP32 and AMP look alike, or AMP slower: it has more calls.", correct=True),
            Answer("Nothing: PyTorch raises an error", "There is no message. The number looks like any other."),
        ),
    ),
    "6-addition": (
        "Most of a step is a + b on large matrices. What can 16 bits gain there?",
        (
            Answer("The matrix units' whole factor", "Matrix units multiply matrices; an addition has no product in it."),
            Answer("Nothing: there is hardly any arithmetic", "That is why: memory is the limit, and half the bytes move."),
            Answer("Up to a factor of two", "It moves half the bytes, and moving them is what takes the time.", correct=True),
        ),
    ),
    "7-message": (
        "scaler.step() raises 'No inf checks were recorded for this optimizer.' What do you look at first?",
        (
            Answer("Whether the loss is NaN", "A NaN gradient would have been checked and the step skipped, without an error."),
            Answer(
                "Whether this optimizer's parameters have gradients",
                "Every .grad was None, so there was nothing to check.",
                correct=True,
            ),
            Answer("Whether the loss scale is too high", "Too high a scale gives inf: that is checked and skipped, no error."),
        ),
    ),
    "7-same-loss": (
        "The loss is the same number in every step, and the weights do change. What is the likely cause?",
        (
            Answer("Every step is skipped", "Then the weights would not change, and the scale would fall."),
            Answer("There is no scaler", "Flushed gradients leave weights as they are; where weights move, the loss moves."),
            Answer(
                "One autocast region is open around the whole loop",
                "The forward pass uses the copies that were cast in the first step.",
                correct=True,
            ),
        ),
    ),
    "7-adam": (
        "A loop scales the loss and then calls optimizer.step() with Adam. It learns. Is it well?",
        (
            Answer("Yes: Adam divides the scale out", "It does, until a gradient is inf: then nothing skips the step."),
            Answer("No: an overflow would reach the weights", "Only scaler.step() looks for inf and NaN.", correct=True),
            Answer("No: its steps are 65,536 times too large", "SGD's are. Adam divides by the size of the gradients."),
        ),
    ),
}


def names() -> tuple[str, ...]:
    """The names of all questions: the lesson's number, a dash and a word, in the order of the course."""
    return tuple(_QUESTIONS)


def ask(name: str) -> Question:
    """The question with this name, which keeps a correct answer in the learner's progress; raises LessonError for a name that does not exist."""
    if name not in _QUESTIONS:
        raise LessonError(f"There is no question {name!r}; the names are {', '.join(_QUESTIONS)}.")
    question, answers = _QUESTIONS[name]
    return Question(question, answers, name)
