"""Every mistake is named when it is made, and not when it is cured."""

import pytest

from amp_lessons.doctor.report import SEVERITIES
from tests.unit.doctor.cases import CASES

ALL = [pytest.param(rule, function, id=f"{rule}:{function.__name__}") for rule, functions in CASES.items() for function in functions]


@pytest.mark.parametrize(("rule", "function"), ALL)
def test_sick_loop_is_named_and_cured_loop_is_not(rule, function):
    sick = function(True)
    named = {finding.rule: finding for finding in sick.findings}
    assert rule in named, str(sick)
    finding = named[rule]
    assert finding.severity in SEVERITIES
    assert any(character.isdigit() for character in finding.evidence), "evidence has numbers from the run"
    assert not sick._observer.troubles

    cured = function(False)
    assert rule not in {finding.rule for finding in cured.findings}, str(cured)
    assert not [f for f in cured.findings if f.severity != "advice"], str(cured)
    assert not cured._observer.troubles
