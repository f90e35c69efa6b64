/** What the editor of an alias holds while somebody types, and the way from there to a request's body. */
import type { Alias, AliasSet, AliasTarget, Guard } from "@/api/types";

import { mainTarget } from "./shares";

type Typed = number | string;

export interface Draft {
  alias: string;
  /** Gets whatever the others leave. */
  main: string | null;
  others: { version: string | null; weight: Typed }[];
  sticky: boolean;
  guarded: boolean;
  maxErrorPercent: Typed;
  maxTtftRatio: Typed;
  minRequests: Typed;
  reason: string;
}

const GUARD_AT_FIRST = { maxErrorPercent: 5, maxTtftRatio: 2, minRequests: 200 };
const ALIAS_NAME = /^[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?$/;

/** An editor that shows `alias` as it is, or a new alias that points at `version`. */
export function draftOf(alias: Alias | null, version: number | null): Draft {
  const main = alias === null ? version : (mainTarget(alias.targets)?.version ?? null);
  const guard = alias?.guard ?? null;
  return {
    alias: alias?.alias ?? "",
    main: main === null ? null : String(main),
    others: (alias?.targets ?? [])
      .filter((target) => target.version !== main)
      .map((target) => ({ version: String(target.version), weight: target.weight })),
    sticky: alias?.sticky === "user",
    guarded: guard !== null,
    ...(guard === null ? GUARD_AT_FIRST : typedGuard(guard)),
    reason: "",
  };
}

function typedGuard(guard: Guard) {
  return {
    maxErrorPercent: guard.max_error_rate == null ? "" : Number((guard.max_error_rate * 100).toFixed(6)),
    maxTtftRatio: guard.max_ttft_ratio ?? "",
    minRequests: guard.min_requests,
  };
}

/** What the main version is left with. */
export function mainShare(draft: Draft): number {
  return 100 - draft.others.reduce((sum, { weight }) => sum + (Number(weight) || 0), 0);
}

/** Sentences by the field that is wrong; empty when the draft can be sent. */
export function draftProblems(draft: Draft): Record<string, string> {
  const problems: Record<string, string> = {};
  if (!ALIAS_NAME.test(draft.alias) || draft.alias.includes("..")) {
    problems.alias = "1 to 64 of a-z 0-9 . _ -, a letter or digit at both ends, no two dots in a row.";
  }
  if (draft.main === null) problems.main = "Choose a version.";
  const seen = new Set([draft.main]);
  draft.others.forEach(({ version, weight }, index) => {
    if (version === null) problems[`others.${index}.version`] = "Choose a version.";
    else if (seen.has(version)) problems[`others.${index}.version`] = "Each version once.";
    seen.add(version);
    const share = Number(weight);
    if (weight === "" || !Number.isInteger(share) || share < 1 || share > 99) problems[`others.${index}.weight`] = "1 to 99.";
  });
  if (mainShare(draft) < 1) problems.main = "The others leave it nothing.";
  return draft.guarded ? { ...problems, ...guardProblems(draft) } : problems;
}

function guardProblems({ maxErrorPercent, maxTtftRatio, minRequests }: Draft): Record<string, string> {
  const problems: Record<string, string> = {};
  const [percent, ratio, least] = [Number(maxErrorPercent), Number(maxTtftRatio), Number(minRequests)];
  if (maxErrorPercent === "" && maxTtftRatio === "") problems.maxErrorPercent = "Give at least one limit.";
  else if (maxErrorPercent !== "" && !(percent > 0 && percent <= 100)) problems.maxErrorPercent = "Above 0, at most 100.";
  if (maxTtftRatio !== "" && !(ratio > 1 && ratio <= 100)) problems.maxTtftRatio = "Above 1, at most 100.";
  if (minRequests === "" || !Number.isInteger(least) || least < 20 || least > 1_000_000) {
    problems.minRequests = "20 to 1,000,000.";
  }
  return problems;
}

export function draftTargets(draft: Draft): AliasTarget[] {
  const others = draft.others.map(({ version, weight }) => ({ version: Number(version), weight: Number(weight) || 0 }));
  const main = draft.main === null ? [] : [{ version: Number(draft.main), weight: mainShare(draft) }];
  return [...main, ...others].filter(({ weight }) => weight > 0).toSorted((a, b) => a.version - b.version);
}

export function draftBody(draft: Draft): AliasSet {
  const reason = draft.reason.trim();
  return {
    targets: draftTargets(draft),
    sticky: draft.sticky ? "user" : "none",
    guard: draft.guarded ? draftGuard(draft) : null,
    ...(reason === "" ? {} : { reason }),
  };
}

function draftGuard({ maxErrorPercent, maxTtftRatio, minRequests }: Draft): Guard {
  return {
    max_error_rate: maxErrorPercent === "" ? null : Number((Number(maxErrorPercent) / 100).toFixed(8)),
    max_ttft_ratio: maxTtftRatio === "" ? null : Number(maxTtftRatio),
    min_requests: Number(minRequests),
  };
}
