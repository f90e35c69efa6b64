import type { Ledger } from "@/api/types";

/** The five states a byte of a pool can be in, in the order of the bar; every byte is in exactly one. */
export const LEDGER_STATES = [
  { key: "used", label: "Used", paint: "var(--lk-used)", meaning: "Held by running requests." },
  { key: "reserved", label: "Reserved", paint: "var(--lk-reserved)", meaning: "Kept for a request that needs it soon." },
  { key: "in_flight", label: "In flight", paint: "var(--lk-in-flight)", meaning: "Being copied or loaded at this moment." },
  { key: "cached", label: "Cached", paint: "var(--lk-cached)", meaning: "Kept for reuse, given up as soon as the room is needed." },
  { key: "free", label: "Free", paint: "var(--lk-free)", meaning: "Held by nobody." },
] as const;

export function sumOfStates(ledger: Ledger): number {
  return LEDGER_STATES.reduce((sum, { key }) => sum + ledger[key], 0);
}

export function heldByTenants(ledger: Pick<Ledger, "by_tenant">): number {
  return ledger.by_tenant.reduce((sum, { bytes }) => sum + bytes, 0);
}
