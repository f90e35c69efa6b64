"""Findings as the API shows them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

Severity = Literal["warning", "critical"]


class Evidence(BaseModel):
    label: str
    value: str = Field(description="a number with its unit")


class Cost(BaseModel):
    """What a symptom costs by estimate; `share` is a part of the named whole, from 0 to 1, where there is one."""

    text: str
    share: float | None


class Finding(BaseModel):
    rule: str
    severity: Severity
    title: str
    explanation: str
    evidence: list[Evidence]
    cost: Cost
    remedy: str
    setting: str | None = Field(description="the assignment to make, such as LORIKEET_ENGINE__MAX_NUM_SEQS=12")


class Findings(BaseModel):
    """What is wrong now, critical findings first; `examined_s` is null as long as too little was seen to tell."""

    examined_s: float | None = Field(description="how many seconds of the engine's life were looked at")
    at: int | None = Field(description="unix seconds of the last examination")
    findings: list[Finding]
