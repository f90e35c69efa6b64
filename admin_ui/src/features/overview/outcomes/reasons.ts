/** Counts by code in plain words. A code that this page does not know is shown as it came, never dropped. */
export interface Reason {
  code: string;
  words: string;
}

export interface Counted extends Reason {
  n: number;
}

export const MISSES: readonly Reason[] = [
  { code: "cold", words: "Never seen before" },
  { code: "evicted", words: "Was cached, but its room was needed" },
  { code: "adapter_version", words: "Cached for another adapter or version" },
  { code: "salt", words: "Cached under another salt" },
  { code: "in_progress", words: "Another request computes it right now" },
  { code: "partial_tail", words: "All found but a rest smaller than a block" },
  { code: "too_short", words: "Prompt shorter than a block" },
];

export interface Fault {
  who: string;
  status: number;
  meaning: string;
  reasons: readonly Reason[];
}

export const ENGINE_FULL: Fault = {
  who: "Engine full",
  status: 503,
  meaning: "Nobody's own limit: all tenants together ask for more than the engine can do in time. Answered 503.",
  reasons: [
    { code: "engine_queue", words: "Too many requests wait" },
    { code: "engine_tokens", words: "Too many prompt tokens wait" },
    { code: "ttft_engine", words: "Too late behind all the work ahead" },
    { code: "ttft_kv", words: "KV blocks free too late" },
  ],
};

export const FAULTS: readonly Fault[] = [
  {
    who: "Tenant's own limit",
    status: 429,
    meaning: "The tenant sends more than its share; the others are not affected. Answered 429.",
    reasons: [
      { code: "tenant_queue", words: "Its part of the queue is full" },
      { code: "ttft_tenant", words: "Too late behind its own work ahead" },
    ],
  },
  {
    who: "Adapter loading",
    status: 503,
    meaning: "The adapter that the request names is not in the arena and cannot be there in time. Answered 503.",
    reasons: [{ code: "ttft_adapter", words: "Adapter there too late" }],
  },
  ENGINE_FULL,
];

export function inWords(counts: Readonly<Record<string, number>>, reasons: readonly Reason[]): Counted[] {
  return reasons.map(({ code, words }) => ({ code, words, n: counts[code] ?? 0 }));
}

/** What was counted under codes that none of the reasons has. */
export function unnamed(counts: Readonly<Record<string, number>>, reasons: readonly Reason[]): Counted[] {
  const named = new Set(reasons.map(({ code }) => code));
  return Object.entries(counts)
    .filter(([code, n]) => !named.has(code) && n > 0)
    .map(([code, n]) => ({ code, words: code.replaceAll("_", " "), n }));
}

export function total(counted: readonly Counted[]): number {
  return counted.reduce((sum, { n }) => sum + n, 0);
}
