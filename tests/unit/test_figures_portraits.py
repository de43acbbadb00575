"""The four portraits: each recipe's picture and numbers stand under its own name."""

import numpy
import pytest

from amp_lessons import problems, recipes
from amp_lessons.figures.portraits import Portraits
from amp_lessons.training import train


@pytest.fixture
def portraits():
    return Portraits(problems.portrait().picture().numpy())


def test_shows_what_each_model_paints(portraits):
    runs = [train(problems.portrait(), recipe, steps=2) for recipe in recipes.RECIPES]
    for run in runs:
        run.finish()
    portraits.show(runs)
    for run in runs:
        drawn = portraits._images[run.recipe.name].get_array()
        assert numpy.allclose(drawn, run.problem.picture(run.model).numpy())
        assert portraits.psnr[run.recipe.name] == pytest.approx(run.problem.psnr(run.model))
        assert f"{run.problem.psnr(run.model):.1f} dB" in portraits._texts[run.recipe.name].get_text()
    assert "scale 2^16" in portraits._texts["amp"].get_text()
    assert "no loss scale" in portraits._texts["fp16"].get_text()
    for recipe in recipes.RECIPES:
        assert recipe.label in portraits.text


def test_untrained_recipes_are_grey_and_say_so(portraits):
    portraits.show([])
    assert "Nothing is trained" in portraits.text
    for name, image in portraits._images.items():
        assert numpy.unique(image.get_array()).size == 1
        assert "not trained yet" in portraits._texts[name].get_text()


def test_untrained_models_are_shown_as_they_are(portraits):
    run = train(problems.portrait(), recipes.AMP, steps=2)
    portraits.show([run])
    assert numpy.allclose(portraits._images["amp"].get_array(), run.problem.picture(run.model).numpy())
    assert "not trained yet" in portraits._texts["amp"].get_text() and "loss" not in portraits._texts["amp"].get_text()


def test_stopped_run_tells_why(portraits):
    problem = problems.portrait()
    problem.targets[0, 0] = float("nan")
    run = train(problem, recipes.FP32, steps=50)
    run.finish()
    portraits.show([run])
    assert run.history.stopped in portraits.text
