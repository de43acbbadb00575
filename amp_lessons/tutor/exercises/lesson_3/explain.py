"""Words that the exercises of lesson 3 share: what an error means, and a dtype's short name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

from amp_lessons.tutor.trial import AnswerFailed


@contextmanager
def explained(meanings: Mapping[str, str]) -> Iterator[None]:
    """Add to an ``AnswerFailed`` of the block the first meaning whose key is part of its text; others pass as they are."""
    try:
        yield
    except AnswerFailed as failure:
        meaning = next((told for part, told in meanings.items() if part in str(failure)), None)
        if meaning is None:
            raise
        raise AnswerFailed(f"{failure} {meaning}") from failure.__cause__


def short(dtype: torch.dtype) -> str:
    """The dtype's name without torch."""
    return str(dtype).removeprefix("torch.")
