import { describe, expect, it } from "vitest";

import { queue } from "@/testing/samples";

import { serviceShares } from "./service-share";

function sample(at: number, services: Record<string, number>, weight = 1) {
  return { at, queues: Object.entries(services).map(([tenant, service]) => queue(tenant, { service, weight })) };
}

describe("the share of service", () => {
  it("is unknown before two samples, and while nobody is served", () => {
    expect(serviceShares([])).toEqual(new Map());
    expect(serviceShares([sample(0, { acme: 5 })])).toEqual(new Map());
    expect(serviceShares([sample(0, { acme: 5 }), sample(1, { acme: 5 })])).toEqual(new Map());
  });

  it("counts tokens, not the engine's tokens per weight", () => {
    const light = queue("light", { weight: 1 });
    const heavy = queue("heavy", { weight: 3 });
    const before = { at: 0, queues: [light, heavy] };
    const after = { at: 1, queues: [{ ...light, service: 10 }, { ...heavy, service: 10 }] };
    expect(serviceShares([before, after])).toEqual(new Map([["light", 0.25], ["heavy", 0.75]]));
  });

  it("does not take a tenant's return from idleness for service", () => {
    const samples = [sample(0, { acme: 0, globex: 0 }), sample(1, { acme: 10 }), sample(2, { acme: 20, globex: 15 })];
    expect(serviceShares(samples)).toEqual(new Map([["acme", 1]]));
  });

  it("starts anew with an engine that starts anew", () => {
    const samples = [sample(0, { acme: 900 }), sample(1, { acme: 2 }), sample(2, { acme: 4 })];
    expect(serviceShares(samples)).toEqual(new Map([["acme", 1]]));
  });
});
