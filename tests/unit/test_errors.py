import subprocess
import sys

import pytest

from amp_lessons.errors import LessonError


def test_ipython_shows_the_sentence_alone():
    program = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell()\n"
        "shell.run_cell('from amp_lessons.errors import LessonError')\n"
        "shell.run_cell('def deep():\\n    raise LessonError(\"The scale is 0; give one above 0.\")\\n\\ndeep()')\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["LessonError: The scale is 0; give one above 0."]
    assert done.stderr == ""


def test_elsewhere_it_is_an_ordinary_exception():
    with pytest.raises(LessonError, match="^what and why$"):
        raise LessonError("what and why")
