import type { Ledger } from "@/api/types";

/** The five states a byte of a pool can be in, in the order of the bar; every byte is in exactly one. */
export const LEDGER_STATES = [
  { key: "used", label: "Used", color: "var(--lk-used)", meaning: "held by running requests" },
  { key: "reserved", label: "Reserved", color: "var(--lk-reserved)", meaning: "promised, not handed out yet" },
  { key: "in_flight", label: "In flight", color: "var(--lk-in-flight)", meaning: "being copied" },
  { key: "cached", label: "Cached", color: "var(--lk-cached)", meaning: "worth keeping, can be evicted" },
  { key: "free", label: "Free", color: "var(--lk-free)", meaning: "held by nobody" },
] as const;

export function sumOfStates(ledger: Ledger): number {
  return LEDGER_STATES.reduce((sum, { key }) => sum + ledger[key], 0);
}
