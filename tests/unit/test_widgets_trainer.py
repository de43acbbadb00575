"""Live training: Run, Stop and Reset at any moment, errors shown, nothing wedged. Driven through a real event loop."""

import asyncio
import contextlib
import html
import threading
import time

import numpy
import pytest
import torch

from amp_lessons import problems, recipes
from amp_lessons.figures.portraits import Portraits
from amp_lessons.training import train
from amp_lessons.widgets.controls import Stepper
from amp_lessons.widgets.portrait_trainer import PortraitTrainer
from amp_lessons.widgets.trainer import SHOW_EVERY, LiveTrainer


class Small(LiveTrainer):
    """Trains FP32 for a number of steps that its control sets."""

    def __init__(self, steps=1000):
        self.count = Stepper("steps", 1, 5000, value=steps)
        self.problem = problems.portrait(size=16)
        super().__init__([self.count], Portraits(self.problem.picture().numpy()))

    def new_runs(self):
        return [train(self.problem, recipes.FP32, self.count.value)]

    def redraw(self):
        self.picture.show(self.runs)
        return f"{len(self.runs)} runs"


async def until(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        await asyncio.sleep(0)


def steps_of(trainer):
    return len(trainer.runs[0].history.records) if trainer.runs else 0


def test_runs_to_the_end_and_says_so():
    async def scenario():
        trainer = Small(steps=5)
        trainer.run_button.click()
        assert trainer.training
        await until(lambda: not trainer.training)
        assert steps_of(trainer) == 5
        assert trainer.progress.description == "finished, step 5" and trainer.progress.value == trainer.progress.max == 5

    asyncio.run(scenario())


def test_stop_keeps_what_was_trained_and_run_goes_on():
    async def scenario():
        trainer = Small()
        trainer.run()
        await until(lambda: steps_of(trainer) >= 3)
        trainer.stop_button.click()
        run, done = trainer.runs[0], steps_of(trainer)
        assert not trainer.training and trainer.progress.description == f"stopped, step {done}"
        for _ in range(20):
            await asyncio.sleep(0)
        assert steps_of(trainer) == done  # no step after the click
        trainer.run()
        await until(lambda: steps_of(trainer) > done)
        assert trainer.runs[0] is run
        trainer.stop()

    asyncio.run(scenario())


def test_stop_answers_within_a_fifth_of_a_second():
    async def scenario():
        trainer, waits = PortraitTrainer(), []
        for _ in range(4):  # the best of four, since a stalled machine is no fault of Stop
            trainer.run()
            done = steps_of(trainer)
            await until(lambda done=done: steps_of(trainer) > done)
            clicked = time.monotonic()
            asyncio.get_running_loop().call_soon(trainer.stop_button.click)
            await until(lambda: trainer.progress.description.startswith("stopped"))
            waits.append(time.monotonic() - clicked)
        assert min(waits) < 0.2

    asyncio.run(scenario())


def test_stop_before_the_first_step():
    async def scenario():
        trainer = Small(steps=3)
        trainer.run()
        trainer.stop()
        await asyncio.sleep(0)
        assert not trainer.training and trainer.progress.description == "ready, step 0"
        trainer.run()
        await until(lambda: not trainer.training)
        assert steps_of(trainer) == 3

    asyncio.run(scenario())


def test_changed_control_starts_anew_at_the_next_run():
    async def scenario():
        trainer = Small()
        trainer.run()
        await until(lambda: steps_of(trainer) >= 2)
        trainer.count.value = 7  # while it trains: nothing breaks, the present runs go on
        old = trainer.runs[0]
        await asyncio.sleep(0)
        assert trainer.training and trainer.runs[0] is old
        trainer.stop()
        await until(lambda: not trainer.training)
        trainer.run()
        await until(lambda: not trainer.training)
        assert trainer.runs[0] is not old and steps_of(trainer) == 7

    asyncio.run(scenario())


def test_changed_control_is_told_and_draws_nothing(monkeypatch):
    async def scenario():
        trainer = Small(steps=3)
        trainer.run()
        await until(lambda: not trainer.training)
        image = trainer._image.value
        monkeypatch.setattr(trainer.picture, "png", lambda: pytest.fail("drew the same picture again"))
        trainer.count.value = 4
        assert "The controls have changed" in trainer._twin.value and trainer._image.value == image
        trainer.count.value = 3
        assert "The controls have changed" not in trainer._twin.value

    asyncio.run(scenario())


def test_reset_while_training_shows_untrained_models():
    async def scenario():
        trainer = Small()
        trainer.run()
        await until(lambda: steps_of(trainer) >= 2)
        old = trainer.runs[0]
        trainer.count.value = 9
        trainer.reset_button.click()
        assert not trainer.training and trainer.progress.description == "ready, step 0"
        assert trainer.runs[0] is not old and trainer.runs[0].steps == 9 and not trainer.changed
        untrained = train(trainer.problem, recipes.FP32, 1)
        drawn = trainer.picture._images["fp32"].get_array() / 255
        assert numpy.allclose(drawn, untrained.problem.picture(untrained.model).numpy(), atol=0.51 / 255)
        trainer.run()  # at once, with the old task still to be told
        await until(lambda: not trainer.training)
        assert steps_of(trainer) == 9 and not old.over

    asyncio.run(scenario())


def test_second_run_click_does_not_start_a_second_task():
    async def scenario():
        trainer = Small()
        trainer.run()
        task = trainer._task
        trainer.run()
        assert trainer._task is task
        trainer.stop()
        await until(lambda: not trainer.training)

    asyncio.run(scenario())


def test_two_trainers_at_once():
    async def scenario():
        first, second = Small(steps=6), Small(steps=6)
        first.run()
        second.run()
        await until(lambda: not first.training and not second.training)
        assert first.runs[0].history.losses == second.runs[0].history.losses

    asyncio.run(scenario())


def test_other_work_gets_its_turn_while_training():
    async def scenario():
        trainer = Small()
        trainer.run()
        turns = 0
        while steps_of(trainer) < 5:
            turns += 1
            await asyncio.sleep(0)
        assert turns >= 4
        trainer.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("where", ["new_runs", "first step", "later step"])
def test_error_is_shown_and_run_works_again(where, monkeypatch):
    async def scenario():
        trainer = Small(steps=3)

        def fail(*_):
            raise ValueError("seventeen")

        if where == "later step":
            trainer.run()
            await until(lambda: steps_of(trainer) == 1)

        with monkeypatch.context() as patch:
            if where == "new_runs":
                patch.setattr(trainer, "new_runs", fail)
            else:
                patch.setattr("amp_lessons.training.training_step", lambda *a, **k: fail())
            trainer.run()
            await until(lambda: not trainer.training)
            await asyncio.sleep(0)
            assert "seventeen" in trainer._twin.value and 'role="alert"' in trainer._twin.value
        trainer.reset()
        trainer.run()
        await until(lambda: not trainer.training)
        assert steps_of(trainer) == 3

    asyncio.run(scenario())


def test_interrupt_in_a_step_stops_and_run_goes_on(monkeypatch):
    async def scenario():
        trainer = Small(steps=5)

        def interrupt(*_, **__):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("amp_lessons.training.training_step", interrupt)
            trainer.run()
            await until(lambda: not trainer.training)
        trainer.run()
        await until(lambda: not trainer.training)
        assert steps_of(trainer) == 5

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(scenario())


def test_run_without_an_event_loop_is_a_sentence():
    trainer = Small()
    trainer.run()
    assert "needs a notebook" in trainer._twin.value and not trainer.training


def test_portrait_trainer_hands_its_knobs_to_the_runs():
    trainer = PortraitTrainer(steps=5)
    trainer.weight.value, trainer.init_scale.value, trainer.interval.value = -13, 3, 40
    trainer.rate.value, trainer.growth.value, trainer.backoff.value = 1e-3, 4.0, 0.25
    runs = trainer.new_runs()
    assert [run.recipe for run in runs] == list(recipes.RECIPES)
    scaler = runs[2].scaler
    assert scaler.get_scale() == 8.0 and scaler.get_growth_interval() == 40
    assert scaler.get_growth_factor() == 4.0 and scaler.get_backoff_factor() == 0.25
    assert all(run.problem.loss_weight == 2.0**-13 and run.optimizer.param_groups[0]["lr"] == 1e-3 for run in runs)


def test_portrait_trainer_shows_finished_runs_first():
    problem = problems.portrait(loss_weight=2.0**-10)
    runs = [train(problem, recipe, steps=2) for recipe in recipes.RECIPES]
    for run in runs:
        run.finish()
    trainer = PortraitTrainer(runs)
    assert "after 2 steps" in trainer.text and not trainer.changed and trainer.progress.description.startswith("finished")
    assert "Live experiment" in repr(trainer)  # what nbval compares has no measured number in it


def test_portrait_trainer_begins_untrained_without_runs():
    trainer = PortraitTrainer()
    assert "press Run" in trainer.text and trainer.progress.description == "ready, step 0"
    assert "not trained yet" in trainer.picture._texts["amp"][1].get_text()


def test_pictures_come_on_time_and_the_last_one_is_whole(monkeypatch):
    async def scenario():
        trainer, shown = PortraitTrainer(), []
        trainer._image.observe(lambda change: shown.append(change.new), "value")
        trainer.run()
        begun = time.perf_counter()
        await until(lambda: len(shown) == 8)
        assert time.perf_counter() - begun > 7 * SHOW_EVERY  # no oftener than need be, since it is training time
        painted = {run.recipe.name: numpy.array(trainer.picture._images[run.recipe.name].get_array()) for run in trainer.runs}
        untrained = PortraitTrainer().picture._images
        assert all((pixels != untrained[name].get_array()).any() for name, pixels in painted.items())  # each had its turn
        trainer.stop()
        whole = Portraits(problems.portrait().picture().numpy())
        whole.show(trainer.runs)
        assert trainer._image.value == whole.png()
        assert trainer.text == whole.text and whole.text.splitlines()[0] in trainer._twin.value

    asyncio.run(scenario())


def test_the_text_changes_once_a_second_at_most_while_training():
    async def scenario():
        trainer, said = PortraitTrainer(), []
        trainer._twin.observe(lambda change: said.append(time.perf_counter()), "value")
        trainer.run()
        await until(lambda: len(said) == 3)
        assert min(after - before for before, after in zip(said, said[1:])) > 0.9
        trainer.stop()

    asyncio.run(scenario())


def test_error_in_a_preview_is_shown_and_run_works_again():
    async def scenario():
        trainer = Small()
        trainer.preview = lambda: 1 / 0
        trainer.run()
        await until(lambda: not trainer.training)
        assert "ZeroDivisionError" in trainer._twin.value and 'role="alert"' in trainer._twin.value
        del trainer.preview
        done = steps_of(trainer)
        trainer.run()
        await until(lambda: steps_of(trainer) > done)
        trainer.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("recipe", recipes.RECIPES, ids=lambda recipe: recipe.name)
def test_nan_in_the_targets_ends_the_run_and_is_told(recipe):
    async def scenario():
        trainer = Small(steps=100)
        trainer.problem.targets[3] = torch.nan
        trainer.new_runs = lambda: [train(trainer.problem, recipe, trainer.count.value)]
        trainer.redraw = lambda: trainer.picture.show(trainer.runs) or trainer.picture.text
        trainer.run()
        await until(lambda: not trainer.training)
        assert steps_of(trainer) < 30 and trainer.progress.description.startswith("finished")
        assert "already nan in step 0" in trainer.text or "The loss is nan in step 0" in trainer.text
        assert trainer.text in html.unescape(trainer._twin.value) and 'role="status"' in trainer._twin.value

    asyncio.run(scenario())


def test_portrait_trainer_goes_on_with_another_picture_of_its_runs():
    problem = problems.portrait(size=16, loss_weight=0.5)
    problem.targets[:] = 0.25
    trainer = PortraitTrainer([train(problem, recipe, steps=2) for recipe in recipes.RECIPES], steps=2)
    for run in trainer.new_runs():
        assert (run.problem.targets == 0.25).all() and run.problem.loss_weight == 2.0**-10  # the knob's


def test_buttons_pressed_in_another_thread_act_in_the_one_that_trains():
    async def scenario():
        trainer, threads = Small(), set()
        new_runs, redraw = trainer.new_runs, trainer.redraw
        trainer.new_runs = lambda: threads.add(threading.get_ident()) or new_runs()
        trainer.redraw = lambda: threads.add(threading.get_ident()) or redraw()
        for button, state in ((trainer.run_button, "training"), (trainer.stop_button, "stopped"), (trainer.reset_button, "ready")):
            await asyncio.to_thread(button.click)
            await until(lambda state=state: trainer.progress.description.startswith(state))
        assert threads == {threading.get_ident()}

    asyncio.run(scenario())
