"""Two minutes of random keys and clicks on every widget of the course, in one kernel and one page: no error, and no growth."""

import json
import random
import re
import time

import pytest

from amp_lessons.lab import NOTEBOOKS
from amp_lessons.tutor import questions
from tests.browser.explorers import EXPLORERS, SETUP
from tests.browser.lab import Lab
from tests.browser.training import run_in_kernel

SECONDS = 120  # in all
WARM_UP = 40  # of these: caches fill, and memory that is freed stays with the process
GROWTH = 1.10  # largest ratio of memory after to memory before
SEED = 16

LISTEN = """
import logging
import ipywidgets
from IPython.display import display

class Listener(logging.Handler):
    def emit(self, record):
        logged.append(self.format(record))

logged = []
for logger in (logging.getLogger(), get_ipython().kernel.log):
    logger.addHandler(Listener(logging.ERROR))
"""
WIDGETS = """
from amp_lessons.tutor.exercises import exercise
from amp_lessons.tutor.practice import PracticeSlider
from amp_lessons.tutor.questions import ask, names
from amp_lessons.widgets.portrait_trainer import PortraitTrainer

display(PracticeSlider(), PortraitTrainer(), *map(ask, names()))
"""
# All in one cell: JupyterLab 4.6 keeps a toolbar for good whenever another cell becomes the active one, 0.1 MB each
# (jupyterlab/jupyterlab#19370), which would hide what the course's own widgets keep.
SHOW = WIDGETS + f"display({', '.join(case.call for case in EXPLORERS)})\n" + 'exercise("1-token").check(0)'
MEASURE = """
import contextlib, ctypes, gc, json, psutil
import ipywidgets.widgets.widget
import matplotlib.pyplot
from matplotlib.figure import Figure
for _ in range(3): _ = gc.collect()
with contextlib.suppress(AttributeError, TypeError, OSError):  # not glibc
    _ = ctypes.CDLL(None).malloc_trim(0)  # gives back what is free, which is not what is counted here
print(json.dumps({
    "pyplot figures": len(matplotlib.pyplot.get_fignums()),
    "figures": sum(issubclass(type(each), Figure) for each in gc.get_objects()),
    "widgets": len(ipywidgets.widgets.widget._instances),
    "kernel": psutil.Process().memory_info().rss,
    "logged": logged,
}))
"""
# Whatever is shown as an error even for a moment, and whatever the kernel reports outside of a cell.
WATCH = """() => {
    window.told = [];
    const look = node => {
        if (node.nodeType !== 1) return;
        for (const alert of [node, ...node.querySelectorAll('*')].filter(each => each.getAttribute('role') === 'alert'))
            window.told.push(alert.textContent);
    };
    new MutationObserver(changes => changes.forEach(change => change.addedNodes.forEach(look)))
        .observe(document.querySelector('.jp-Notebook'), {subtree: true, childList: true});
    window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.iopubMessage.connect((_, {header, content}) => {
        if (header.msg_type === 'error') window.told.push(`${content.ename}: ${content.evalue}`);
        if (header.msg_type === 'stream' && content.name === 'stderr') window.told.push(content.text);
    });
}"""
KEYS = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "PageUp", "PageDown", "Home", "End"]
TYPED = ["0", "1", "7", "-3", "16", "2000", "999999", "-1e9", "3.7", "1e400", "", "abc", "--", "0x10", "½", "NaN"]
CONTROLS = {"sliders": ".noUi-handle", "boxes": "input", "buttons": "button"}


@pytest.fixture(scope="module")
def soaked(module_lab: Lab) -> Lab:
    module_lab.write("soak.ipynb", [SETUP, LISTEN, SHOW])
    module_lab.open("soak.ipynb")
    module_lab.run_all()
    module_lab.page.evaluate(WATCH)
    return module_lab


def test_every_widget_of_the_lessons_is_driven():
    used = set()
    for path in NOTEBOOKS.glob("0*.ipynb"):
        used |= set(re.findall(r"\b(\w+(?:Explorer|Trainer|Slider))\(", path.read_text(encoding="utf-8")))
    assert len(used) >= 10
    assert {name for name in used if f"{name}(" not in SHOW} == set()


def drive(lab: Lab, draw: random.Random, seconds: float) -> int:
    """Random input for so long; gives the number of inputs."""
    page, done, end = lab.page, 0, time.monotonic() + seconds
    output = page.locator(".jp-Notebook .jp-OutputArea-output")
    found = {kind: output.locator(css) for kind, css in CONTROLS.items()}
    count = {kind: controls.count() for kind, controls in found.items()}
    assert count["sliders"] > 10 and count["boxes"] > 10 and count["buttons"] > 40 + len(questions.names())
    while time.monotonic() < end:
        # A burst without a pause, as from an impatient hand, and then time to answer.
        for _ in range(draw.randint(1, 12)):
            kind = draw.choice(list(CONTROLS))
            control = found[kind].nth(draw.randrange(count[kind]))
            if kind == "buttons":
                control.click(timeout=10_000)
            else:
                control.focus()
                if kind == "boxes":
                    page.keyboard.press("ControlOrMeta+a")
                    page.keyboard.type(draw.choice(TYPED))
                    page.keyboard.press("Enter")
                for key in draw.choices(KEYS, k=draw.randint(1, 5)):
                    page.keyboard.press(key)
            done += 1
        trainer = lab.trainer()
        if draw.random() < 0.3:  # among so many buttons its three would hardly be hit
            lab.click(trainer, draw.choice(["Run", "Run", "Stop", "Reset"]))
        lab.wait_until_idle()
    return done


def measure(lab: Lab) -> dict:
    """What there is in the kernel and in the page, once the trainer has forgotten its runs."""
    lab.click(lab.trainer(), "Reset")
    lab.wait_until_idle()
    counts = json.loads(run_in_kernel(lab, MEASURE))
    session = lab.page.context.new_cdp_session(lab.page)
    for _ in range(2):
        session.send("HeapProfiler.collectGarbage")
    counts["page"] = session.send("Runtime.getHeapUsage")["usedSize"]
    session.detach()
    return counts


def test_two_minutes_of_random_input_leave_no_error_and_no_growth(soaked):
    draw = random.Random(SEED)
    done = drive(soaked, draw, WARM_UP)
    before = measure(soaked)
    done += drive(soaked, draw, SECONDS - WARM_UP)
    after = measure(soaked)
    sizes = {name: f"{before[name] / 2**20:.0f} to {after[name] / 2**20:.0f} MiB" for name in ("kernel", "page")}
    print(f"{done} inputs; {sizes}, {after['figures']} figures, {after['widgets']} widgets")

    assert soaked.page.evaluate("window.told") == [] and after["logged"] == []
    assert soaked.alerts() == [] and soaked.errors() == [] and soaked.console_errors == []
    assert after["pyplot figures"] == 0
    assert after["figures"] == before["figures"] and after["widgets"] == before["widgets"]
    for name in ("kernel", "page"):
        assert after[name] <= GROWTH * before[name], sizes
