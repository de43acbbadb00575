# make lab        opens the course in JupyterLab (sets everything up the first time)
# make test       proves that it works: unit tests, every cell of every lesson, a real browser
# make lessons    runs every lesson and stores its outputs
# make pictures   draws the README's pictures anew
# make instructor fills the solutions in, and writes a page of all exercises, hints and expected wrong answers
# make record     measures the course's experiments on this machine, in under four minutes
# make bench      times recording beside TensorBoard and wandb, train() beside a plain loop, and live training with and without
#                 its pictures, in three minutes on a quiet machine
# make clean      removes the virtual environment
#
# LAB_ARGS goes to JupyterLab:  make lab LAB_ARGS="--no-browser --port 9000"
# RECORD_ARGS to the recording: make record RECORD_ARGS="--device cpu --output mine.json"
# PYTHON chooses the Python:    make lab PYTHON=python3.12

PYTHON ?= python3
VENV ?= .venv
RUN = $(VENV)/bin/python
LESSONS = $(sort $(wildcard notebooks/[0-9]*.ipynb))

.DEFAULT_GOAL := help
.PHONY: help lab test lessons pictures instructor record bench clean

help:
	@sed -n '/^#/!q;s/^# \{0,1\}//p' Makefile

lab: $(VENV)/.installed
	@$(RUN) -m amp_lessons.lab $(LAB_ARGS)

test: $(VENV)/.installed-test
	@echo "1 of 3: unit tests and notebook rules"
	@$(RUN) -m pytest -q --ignore=tests/browser tests
	@echo "2 of 3: every cell of every lesson, compared with what is stored"
	@$(RUN) -m pytest -q --nbval --nbval-current-env --nbval-cell-timeout 120 $(LESSONS)
	@echo "3 of 3: the lessons in a real browser"
	@$(RUN) -m pytest -q -rs tests/browser

lessons: $(VENV)/.installed
	@$(RUN) -m amp_lessons.lessons $(LESSONS)

bench: $(VENV)/.installed-bench
	@$(RUN) -m pytest -q tests/bench/bench_*.py

pictures: $(VENV)/.installed
	@$(RUN) -m amp_lessons.pictures

record: $(VENV)/.installed
	@$(RUN) -m amp_lessons.record $(RECORD_ARGS)

instructor: $(VENV)/.installed
	@$(RUN) -m amp_lessons.instructor

clean:
	rm -rf $(VENV)

# A stamp file, so that a second call starts at once; it is older than these files when something has to change.
$(VENV)/.installed: pyproject.toml constraints.txt
	@$(call create_venv)
	@echo "Installing the course into $(VENV) (the first time takes a few minutes)"
	@$(RUN) -m pip install -q -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-test: pyproject.toml constraints.txt $(VENV)/.installed
	@$(RUN) -m pip install -q -c constraints.txt -e '.[test]'
	@touch $@

$(VENV)/.installed-bench: pyproject.toml constraints.txt $(VENV)/.installed-test
	@$(RUN) -m pip install -q -c constraints.txt -e '.[test,bench]'
	@touch $@

define create_venv
command -v $(PYTHON) >/dev/null 2>&1 || { \
	echo "There is no $(PYTHON) here; install Python 3.10 or newer, or name one: make $(MAKECMDGOALS) PYTHON=/path/to/python"; exit 1; }; \
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	echo "$(PYTHON) is too old: the course needs Python 3.10 or newer; name one: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }; \
$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	echo "This Python has no venv module; on Debian and Ubuntu install it with: sudo apt install python3-venv"; exit 1; }; \
test -x $(RUN) || $(PYTHON) -m venv $(VENV)
endef
