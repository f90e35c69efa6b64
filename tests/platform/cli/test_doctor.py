"""`lorikeet doctor`: what people read, what programs read, and how it ends."""

from __future__ import annotations

import json

from lorikeet_platform.doctor.schemas import Cost, Evidence, Finding, Findings
from tests.platform.cli.conftest import Commands, Installation
from tests.support.stack import wait_until

FOUND = Finding(
    rule="preemption",
    severity="critical",
    title="Requests push each other out of the KV pool",
    explanation="More requests run than the pool holds to their end.",
    evidence=[Evidence(label="preemptions", value="18 (0 swapped)"), Evidence(label="max_num_seqs", value="32")],
    cost=Cost(text="21 % of all FLOPs", share=0.21),
    remedy="Run 7 requests at once.",
    setting="LORIKEET_ENGINE__MAX_NUM_SEQS=7",
)


def tell(installation: Installation, findings: Findings) -> None:
    """After the gateway's first look at its engine, and before the next one."""
    wait_until(lambda: installation.context.doctor.findings.at is not None)
    installation.context.doctor.findings = findings


def test_a_gateway_that_has_not_looked_yet_says_so(lorikeet: Commands, installation: Installation) -> None:
    tell(installation, Findings(examined_s=None, at=None, findings=[]))
    ended = lorikeet("doctor")
    assert ended.code == 12
    assert "not looked" in ended.err


def test_an_engine_of_which_too_little_was_seen_is_not_called_well(
    lorikeet: Commands, installation: Installation
) -> None:
    tell(installation, Findings(examined_s=None, at=1, findings=[]))
    ended = lorikeet("doctor")
    assert (ended.code, ended.out) == (12, "")
    assert "Nothing is wrong" not in ended.err
    assert lorikeet("doctor", "--json").code == 12


def test_what_was_found_without_an_engine_is_a_finding(lorikeet: Commands, installation: Installation) -> None:
    tell(installation, Findings(examined_s=None, at=1, findings=[FOUND]))
    assert lorikeet("doctor").code == 11


def test_nothing_wrong_ends_with_zero(lorikeet: Commands, installation: Installation) -> None:
    tell(installation, Findings(examined_s=120.0, at=1, findings=[]))
    ended = lorikeet("doctor")
    assert (ended.code, ended.out) == (0, "")
    assert "Nothing is wrong; 120 s were looked at." in ended.err


def test_findings_are_printed_with_evidence_and_setting_and_end_with_eleven(
    lorikeet: Commands, installation: Installation
) -> None:
    tell(installation, Findings(examined_s=120.0, at=1, findings=[FOUND]))
    ended = lorikeet("doctor")
    assert ended.code == 11
    assert ended.out.splitlines() == [
        "CRITICAL  Requests push each other out of the KV pool  (preemption)",
        "  More requests run than the pool holds to their end.",
        "    preemptions   18 (0 swapped)",
        "    max_num_seqs  32",
        "  Cost: 21 % of all FLOPs.",
        "  Remedy: Run 7 requests at once.",
        "    LORIKEET_ENGINE__MAX_NUM_SEQS=7",
        "",
    ]
    assert "1 finding; 120 s" in ended.err


def test_programs_get_the_answer_as_it_is(lorikeet: Commands, installation: Installation) -> None:
    told = Findings(examined_s=120.0, at=1, findings=[FOUND])
    tell(installation, told)
    ended = lorikeet("doctor", "--json")
    assert ended.code == 11
    assert json.loads(ended.out) == told.model_dump()


def test_a_gateway_that_cannot_be_reached_is_no_finding(lorikeet: Commands, installation: Installation) -> None:
    assert lorikeet("doctor", "--admin-url", "http://127.0.0.1:9").code == 4
