"""The four portraits: each recipe's picture and numbers stand under its own name, drawn whole or one run at a time."""

import io
import warnings

import numpy
import pytest
from PIL import Image

from amp_lessons import problems, recipes
from amp_lessons.figures.portraits import Portraits
from amp_lessons.training import train


@pytest.fixture
def portraits():
    return Portraits(problems.portrait().picture().numpy())


def trained(steps, problem=None):
    runs = [train(problem or problems.portrait(), recipe, steps=300) for recipe in recipes.RECIPES]
    for run in runs:
        for _ in range(steps):
            next(run, None)
    return runs


def words(portraits, name):
    return "\n".join(text.get_text() for text in portraits._texts[name])


def decoded(png):
    return numpy.asarray(Image.open(io.BytesIO(png)))


def test_shows_what_each_model_paints(portraits):
    runs = trained(2)
    portraits.show(runs)
    for run in runs:
        drawn = portraits._images[run.recipe.name].get_array()
        assert numpy.allclose(drawn / 255, run.problem.picture(run.model).numpy(), atol=0.51 / 255)
        assert portraits.psnr[run.recipe.name] == pytest.approx(run.problem.psnr(run.model))
        assert f"{run.problem.psnr(run.model):.1f} dB" in words(portraits, run.recipe.name)
    assert "scale 2^16" in words(portraits, "amp")
    assert "no loss scale" in words(portraits, "fp16")
    for recipe in recipes.RECIPES:
        assert recipe.label in portraits.text


def test_untrained_recipes_are_grey_and_say_so(portraits):
    portraits.show([])
    assert "Nothing is trained" in portraits.text
    for name, image in portraits._images.items():
        assert numpy.unique(image.get_array()).size == 1
        assert "not trained yet" in words(portraits, name)


def test_untrained_models_are_shown_as_they_are(portraits):
    run = train(problems.portrait(), recipes.AMP, steps=2)
    portraits.show([run])
    painted = run.problem.picture(run.model).numpy()
    assert numpy.allclose(portraits._images["amp"].get_array() / 255, painted, atol=0.51 / 255)
    assert "not trained yet" in words(portraits, "amp") and "loss" not in words(portraits, "amp")


def test_lines_that_are_no_more_leave_nothing_behind(portraits):
    runs = trained(2)
    portraits.show(runs)
    portraits.show(trained(0))
    assert "loss" not in words(portraits, "amp") and "scale" not in words(portraits, "amp")


def test_stopped_run_tells_why(portraits):
    problem = problems.portrait()
    problem.targets[0, 0] = float("nan")
    run = train(problem, recipes.FP32, steps=50)
    run.finish()
    portraits.show([run])
    assert run.history.stopped in portraits.text


def test_nan_is_grey_and_told_in_words_without_a_warning(portraits):
    problem = problems.portrait()
    problem.targets[:] = float("nan")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        portraits.show(trained(1, problem))
        portraits.png()
    assert "FP32: no picture, since it holds NaN, after 1 step, loss nan" in portraits.text
    assert numpy.unique(portraits._images["fp32"].get_array()).tolist() == [191]
    assert "no picture: NaN" in words(portraits, "fp32")


@pytest.mark.parametrize("size", [64, 50, 7])
def test_updates_of_all_runs_leave_exactly_what_a_whole_drawing_leaves(size):
    problem = problems.portrait(size)
    portraits = Portraits(problem.picture().numpy())
    runs = trained(0, problem)
    portraits.show(runs)
    before = decoded(portraits.png())
    for run in runs:
        next(run)
    for run in runs:
        last = portraits.update(run)
    text = portraits.text
    portraits.show(runs)
    whole = decoded(portraits.png())
    assert numpy.array_equal(decoded(last), whole) and not numpy.array_equal(whole, before)
    assert text == portraits.text


def test_update_without_numbers_changes_one_picture_and_nothing_else(portraits):
    runs = trained(1)
    portraits.show(runs)
    before = decoded(portraits.png())
    for run in runs:
        for _ in range(5):
            next(run)
    after = decoded(portraits.update(runs[2], numbers=False))
    changed = numpy.argwhere((before != after).any(-1))
    assert len(changed) and (changed.min(0) >= [50, 4 + 3 * 171]).all() and (changed.max(0) < [218, 4 + 3 * 171 + 168]).all()
    assert "AMP" in portraits.text and "after 6 steps" in portraits.text and "after 1 step," in portraits.text


def test_numbers_stay_inside_what_an_update_wipes(portraits):
    # The longest lines there are: a letter outside the strip would stay there for good.
    for texts in portraits._texts.values():
        for text, line in zip(texts, ["no picture: NaN", "loss 1.2e-308", "zero grads 100%", "scale 2^16.58"]):
            text.set_text(line)
    portraits.png()
    for number, texts in enumerate(portraits._texts.values(), 1):
        for text, row in zip(texts, range(225, 400, 18)):
            box = text.get_window_extent()
            assert 4 + 171 * number <= box.x0 and box.x1 < 4 + 171 * (number + 1)
            assert row <= 315 - box.y1 and 315 - box.y0 <= row + 18
