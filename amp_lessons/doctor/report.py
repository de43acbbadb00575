"""Findings, and how they are shown: as text and as HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

SEVERITIES = ("error", "warning", "advice")


@dataclass(frozen=True)
class Finding:
    """One mistake, with its evidence from this very run.

    ``rule`` is a stable kebab-case id; ``severity`` is "error" (results are wrong or training will fail), "warning" (likely
    wrong or wasteful) or "advice". ``fix`` is the line to write. ``lesson`` is the number of the lesson that explains it, and
    ``step`` the iteration in which it was first seen, counted from 0.
    """

    rule: str
    severity: str
    evidence: str
    why: str
    fix: str
    lesson: int
    step: int = 0


def ordered(findings: Sequence[Finding]) -> list[Finding]:
    """Errors first, then warnings, then advice; each in the order they were seen."""
    return sorted(findings, key=lambda finding: (SEVERITIES.index(finding.severity), finding.step))


def as_text(findings: Sequence[Finding], steps: int, notes: Sequence[str] = ()) -> str:
    """The report as plain text, a few lines a finding."""
    lines = [_summary(findings, steps)]
    for finding in ordered(findings):
        lines += [
            "",
            f"{finding.severity.upper()} {finding.rule} (step {finding.step}, lesson {finding.lesson})",
            f"  seen: {finding.evidence}",
            f"  why:  {finding.why}",
            f"  fix:  {finding.fix}",
        ]
    return "\n".join([*lines, *notes])


def as_html(findings: Sequence[Finding], steps: int, notes: Sequence[str] = ()) -> str:
    """The report as HTML: a heading a finding, its severity as a word."""
    parts = [f"<p>{html.escape(_summary(findings, steps))}</p>"]
    for finding in ordered(findings):
        head = f"{finding.severity}: {finding.rule}"
        rows = (("seen", finding.evidence), ("why", finding.why), ("fix", finding.fix))
        cells = "".join(
            f"<dt><strong>{name}</strong></dt><dd>{f'<code>{html.escape(text)}</code>' if name == 'fix' else html.escape(text)}</dd>"
            for name, text in rows
        )
        where = f"step {finding.step}, explained in lesson {finding.lesson}"
        parts.append(f"<section><h4>{html.escape(head)}</h4><p>{where}</p><dl>{cells}</dl></section>")
    parts += [f"<p>{html.escape(note)}</p>" for note in notes]
    return "".join(parts)


def _summary(findings: Sequence[Finding], steps: int) -> str:
    watched = f"{steps} iteration{'' if steps == 1 else 's'} watched"
    if not findings:
        return f"{watched}: no mistake found."
    counts = [(sum(f.severity == severity for f in findings), severity) for severity in SEVERITIES]
    named = [f"{n} {word}{'s' if n > 1 and word != 'advice' else ''}" for n, word in counts if n]
    return f"{watched}: {', '.join(named)}."
