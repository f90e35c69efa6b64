import type { Engine } from "@/api/types";

export const SLOTS = 6;
/** How much larger a newcomer must be than a tenant on the page to take its place. */
const STAY = 1.25;

/** The tenants that the page names, each with a colour of its own on every panel; all others are summed up. */
export interface Roster {
  shown: readonly string[];
  /** Whether there ever were more tenants than slots: then every panel has a row for the rest. */
  crowded: boolean;
}

export const EMPTY_ROSTER: Roster = { shown: [], crowded: false };
export const OTHERS_PAINT = "var(--lk-others)";

export function slotPaint(slot: number): string {
  return `var(--lk-tenant-${slot + 1})`;
}

/** How much of the engine each tenant has now: its shares of all pools and of the queue, added up. */
export function presence(engine: Engine): Map<string, number> {
  const found = new Map<string, number>();
  const add = (tenant: string, part: number, whole: number) => {
    found.set(tenant, (found.get(tenant) ?? 0) + (whole > 0 ? part / whole : 0));
  };
  for (const ledger of [engine.kv, engine.arena, engine.host, engine.swap]) {
    for (const { tenant, bytes } of ledger?.by_tenant ?? []) add(tenant, bytes, ledger?.capacity ?? 0);
  }
  for (const { tenant, running, waiting } of engine.queues) {
    add(tenant, running + waiting, engine.running + engine.waiting);
  }
  return found;
}

/** Whoever is shown keeps its row and colour, also when it holds nothing, until a larger tenant needs the slot. */
export function nextRoster(before: Roster, present: ReadonlyMap<string, number>): Roster {
  const size = (tenant: string) => (present.get(tenant) ?? 0) * (before.shown.includes(tenant) ? STAY : 1);
  const known = [...new Set([...before.shown, ...[...present.keys()].toSorted()])];
  const largest = new Set(known.toSorted((a, b) => size(b) - size(a)).slice(0, SLOTS));
  const newcomers = [...largest].filter((tenant) => !before.shown.includes(tenant)).toSorted();
  const shown = before.shown.flatMap((tenant) => (largest.has(tenant) ? [tenant] : newcomers.splice(0, 1)));
  return { shown: [...shown, ...newcomers], crowded: before.crowded || known.length > SLOTS };
}

export interface RosterRow<Entry> {
  tenant: string;
  paint: string;
  entry: Entry | undefined;
}

/** A panel's entries in the roster's order, and those of everybody else. */
export function byRoster<Entry extends { tenant: string }>(
  { shown }: Roster,
  entries: readonly Entry[],
): { rows: RosterRow<Entry>[]; others: Entry[] } {
  const found = new Map(entries.map((entry) => [entry.tenant, entry]));
  return {
    rows: shown.map((tenant, slot) => ({ tenant, paint: slotPaint(slot), entry: found.get(tenant) })),
    others: entries.filter(({ tenant }) => !shown.includes(tenant)),
  };
}
