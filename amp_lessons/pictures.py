"""Draws the README's pictures from real runs: ``python -m amp_lessons.pictures``, or ``make pictures``."""

from __future__ import annotations

from pathlib import Path

from amp_lessons.figures.picture import Picture
from amp_lessons.figures.portraits import Portraits
from amp_lessons.lab import NOTEBOOKS
from amp_lessons.problems import portrait
from amp_lessons.recipes import RECIPES
from amp_lessons.training import train

FOLDER = NOTEBOOKS / "pictures"


def four_portraits() -> Picture:
    """The signature experiment: the portrait at a loss weight of 2^-10, learned by all four recipes."""
    problem = portrait(loss_weight=2.0**-10)
    runs = [train(problem, recipe) for recipe in RECIPES]
    for run in runs:
        run.finish()
    picture = Portraits(problem.picture().numpy())
    picture.show(runs)
    return picture


def main(folder: Path = FOLDER) -> None:
    """Write every picture into the folder."""
    folder.mkdir(exist_ok=True)
    for draw in (four_portraits,):
        path = folder / f"{draw.__name__}.png"
        path.write_bytes(draw().png())
        print(path)


if __name__ == "__main__":
    main()
