"""Drawing in two threads at once, as JupyterLab makes a slider and a cell do."""

import threading
from concurrent.futures import ThreadPoolExecutor

import matplotlib

from amp_lessons.figures.picture import Picture
from amp_lessons.figures.style import new_figure, power_of_two, styled


def test_two_threads_draw_mathematics_at_once_and_settings_come_back():
    before = dict(matplotlib.rcParams)

    def draw(first):
        figure, axes = new_figure(2, 2)
        text = axes.text(0.5, 0.5, "")
        picture = Picture(figure, "powers", [text])
        for number in range(first, first + 60):
            text.set_text(power_of_two(number))  # a new one each time, since matplotlib keeps those it has laid out
            picture.png()

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(draw, first) for first in (1000, 2000)]:
            done.result()
    assert dict(matplotlib.rcParams) == before


def test_only_one_thread_is_styled_and_it_may_be_so_twice():
    inside = threading.Event()

    def enter():
        with styled():
            inside.set()

    with styled(), styled():
        other = threading.Thread(target=enter)
        other.start()
        assert not inside.wait(0.3)
    assert inside.wait(5)
    other.join()
