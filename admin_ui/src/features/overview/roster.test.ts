import { describe, expect, it } from "vitest";

import { overview } from "@/testing/samples";

import { byRoster, EMPTY_ROSTER, nextRoster, presence, SLOTS } from "./roster";

const CROWD = Array.from({ length: SLOTS + 2 }, (_, i) => `tenant-${i}`);

function sizes(...entries: [string, number][]) {
  return new Map(entries);
}

describe("the roster of named tenants", () => {
  it("adds up what a tenant has of the pools and of the queue", () => {
    const found = presence(overview().engine);
    expect(found.get("acme")).toBeCloseTo(393_216 / 1_048_576 + 2 * (1536 / 4096) + 7 / 9);
    expect([...found.keys()]).toEqual(["acme", "globex"]);
  });

  it("keeps the row of a tenant that has nothing any more", () => {
    const first = nextRoster(EMPTY_ROSTER, sizes(["globex", 2], ["acme", 1]));
    expect(first).toEqual({ shown: ["acme", "globex"], crowded: false });
    expect(nextRoster(first, sizes(["zebra", 1])).shown).toEqual(["acme", "globex", "zebra"]);
  });

  it("gives a slot to a larger tenant and moves nobody else", () => {
    const first = nextRoster(EMPTY_ROSTER, sizes(...CROWD.slice(0, SLOTS).map((name, i): [string, number] => [name, i + 1])));
    const second = nextRoster(first, sizes(...first.shown.map((name, i): [string, number] => [name, i + 1]), ["big", 9]));
    expect(second).toEqual({ shown: ["big", ...first.shown.slice(1)], crowded: true });
  });

  it("does not swap two tenants of nearly the same size back and forth", () => {
    const first = nextRoster(EMPTY_ROSTER, sizes(...CROWD.map((name): [string, number] => [name, 10])));
    expect(nextRoster(first, sizes(...CROWD.map((name, i): [string, number] => [name, 10 + i / 10]))).shown).toEqual(first.shown);
  });

  it("leaves nobody out: whoever is not named is among the others", () => {
    const roster = nextRoster(EMPTY_ROSTER, sizes(...CROWD.map((name): [string, number] => [name, 1])));
    const { rows, others } = byRoster(roster, CROWD.map((tenant) => ({ tenant })));
    expect([...rows.map(({ tenant }) => tenant), ...others.map(({ tenant }) => tenant)].toSorted()).toEqual(CROWD);
    expect(new Set(rows.map(({ paint }) => paint)).size).toBe(SLOTS);
  });
});
