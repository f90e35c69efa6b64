import { describe, expect, it } from "vitest";

import { adapter, alias, version } from "@/testing/samples";

import { obstacle } from "./alias-history";
import { draftBody, draftOf, draftProblems, draftTargets, mainShare } from "./draft";
import { canaryTarget, differences, guardInWords, mainTarget, targetsInWords } from "./shares";

describe("the shares of an alias", () => {
  it("names the target with the largest share and the one on trial", () => {
    const { targets } = alias("live", { 1: 25, 2: 65, 3: 10 });
    expect([mainTarget(targets)?.version, canaryTarget(targets)?.version]).toEqual([2, 3]);
    expect(canaryTarget(alias("live", { 2: 100 }).targets)).toBeUndefined();
  });

  it("takes the newer of two equal halves as the one on trial", () => {
    const { targets } = alias("live", { 1: 50, 2: 50 });
    expect([mainTarget(targets)?.version, canaryTarget(targets)?.version]).toEqual([1, 2]);
  });

  it("says where it points in words", () => {
    const shares: Record<number, number>[] = [{ 2: 100 }, { 2: 90, 3: 10 }, { 1: 20, 2: 20, 3: 60 }];
    expect(shares.map((each) => targetsInWords(alias("a", each).targets))).toEqual([
      "version 2",
      "version 2 (90 %) and version 3 (10 %)",
      "version 1 (20 %), version 2 (20 %) and version 3 (60 %)",
    ]);
    expect(targetsInWords([])).toBe("nothing");
  });

  it("names only the limits that a guard has", () => {
    const guard = { max_error_rate: null, max_ttft_ratio: 1.5, min_requests: 200 };
    expect(guardInWords(guard)).toBe("goes back on first token above 1.5 × the other's, after 200 requests");
    expect(guardInWords({ ...guard, max_error_rate: 0.001 })).toContain("errors above 0.1 % or first token");
  });

  it("tells what somebody else changed, and only that", () => {
    const before = alias("live", { 2: 100 });
    expect(differences(before, { ...before, targets: alias("live", { 2: 90, 3: 10 }).targets })).toEqual([
      "It pointed at version 2; now it points at version 2 (90 %) and version 3 (10 %).",
    ]);
    expect(differences(before, { ...before, sticky: "user" })).toEqual(["Now a user stays on one version."]);
    expect(differences(before, null)).toEqual(["It was removed."]);
    expect(differences(null, before)).toEqual(["It was created and points at version 2."]);
  });
});

describe("the draft of an alias", () => {
  const canary = { ...draftOf(alias("live", { 2: 100 }), null), others: [{ version: "3", weight: 10 }] };

  it("gives the main version what the others leave, so that the shares add up to 100", () => {
    expect(mainShare(canary)).toBe(90);
    expect(draftTargets(canary)).toEqual([
      { version: 2, weight: 90 },
      { version: 3, weight: 10 },
    ]);
  });

  it("comes back from an alias as it went there", () => {
    const guarded = alias("live", { 1: 30, 2: 70 }, {
      sticky: "user",
      guard: { max_error_rate: 0.07, max_ttft_ratio: null, min_requests: 50 },
    });
    const { targets, sticky, guard } = guarded;
    expect(draftBody(draftOf(guarded, null))).toEqual({ targets, sticky, guard });
  });

  it("names each field that is wrong", () => {
    expect(draftProblems(canary)).toEqual({});
    expect(draftProblems({ ...canary, alias: "Live!" })).toHaveProperty("alias");
    expect(draftProblems({ ...canary, others: [{ version: "2", weight: 10 }] })).toHaveProperty("others.0.version");
    expect([0, 100, 1.5, ""].map((weight) => Object.keys(draftProblems({ ...canary, others: [{ version: "3", weight }] })))).toEqual([
      ["others.0.weight"],
      ["others.0.weight", "main"],
      ["others.0.weight"],
      ["others.0.weight"],
    ]);
  });

  it("wants at least one limit of a guard", () => {
    const guarded = { ...canary, guarded: true, maxErrorPercent: "", maxTtftRatio: "" };
    expect(draftProblems(guarded)).toEqual({ maxErrorPercent: "Give at least one limit." });
    expect(draftProblems({ ...guarded, maxTtftRatio: 1 })).toHaveProperty("maxTtftRatio");
    expect(draftProblems({ ...guarded, maxTtftRatio: 1.2, minRequests: 19 })).toHaveProperty("minRequests");
  });
});

describe("going back to a revision", () => {
  const live = alias("live", { 2: 100 }, { revision: 3 });
  const pirate = adapter("pirate", [version("pirate", 1, { state: "retired" }), version("pirate", 2)], [live]);
  const revision = (fields: object) => ({ revision: 1, targets: live.targets, sticky: "none" as const, guard: null, actor: "owner", reason: null, at: 0, ...fields });

  it("is possible while every version of it is ready", () => {
    expect(obstacle(pirate, live, revision({}))).toBeNull();
    expect(obstacle(pirate, live, revision({ targets: [{ version: 1, weight: 100 }] }))).toBe("version 1 isn't ready");
    expect(obstacle(pirate, live, revision({ targets: [] }))).toBe("nothing to go back to");
    expect(obstacle(pirate, live, revision({ revision: 3 }))).toBe("in force now");
  });
});
