/** Sums over rows of usage, and the columns of the chart. */
import type { UsageRow } from "@/api/types";

import { NO_COSTS, plusCosts, type Costs } from "./costs";
import { starts, type Stretch } from "./periods";

export const GROUPS = ["tenant", "key", "adapter", "version", "model"] as const;
export type Group = (typeof GROUPS)[number];

export const METRICS = [
  { value: "tokens", label: "Tokens" },
  { value: "requests", label: "Requests" },
] as const;
export type Metric = (typeof METRICS)[number]["value"];

export interface Totals {
  requests: number;
  errors: number;
  prompt_tokens: number;
  cached_tokens: number;
  completion_tokens: number;
  costs: Costs;
  /** Of the requests, those that `costs` says nothing of. */
  requests_without_cost: number;
}

const NOTHING: Totals = {
  requests: 0,
  errors: 0,
  prompt_tokens: 0,
  cached_tokens: 0,
  completion_tokens: 0,
  costs: NO_COSTS,
  requests_without_cost: 0,
};

function plus(a: Totals, b: Totals): Totals {
  return {
    requests: a.requests + b.requests,
    errors: a.errors + b.errors,
    prompt_tokens: a.prompt_tokens + b.prompt_tokens,
    cached_tokens: a.cached_tokens + b.cached_tokens,
    completion_tokens: a.completion_tokens + b.completion_tokens,
    costs: plusCosts(a.costs, b.costs),
    requests_without_cost: a.requests_without_cost + b.requests_without_cost,
  };
}

export function totals(rows: readonly Totals[]): Totals {
  return rows.reduce(plus, NOTHING);
}

export function tokensOf({ prompt_tokens, completion_tokens }: Totals): number {
  return prompt_tokens + completion_tokens;
}

export function measure(figures: Totals, metric: Metric): number {
  return metric === "tokens" ? tokensOf(figures) : figures.requests;
}

/** What a row is of, by the group that was asked for: what tells it from others, and its name. */
interface Member {
  id: string;
  name: string;
}

const BASE_MODEL = "base model";

function memberOf(row: UsageRow, by: Group | null): Member {
  if (by === null) return { id: "", name: "all" };
  if (by === "tenant" || by === "model") return { id: row[by] ?? "", name: row[by] ?? "–" };
  const [id, name] = {
    key: [row.key, row.key_name ?? row.key],
    adapter: [row.adapter_id, row.adapter ?? BASE_MODEL],
    version: [row.version_id, row.version ?? BASE_MODEL],
  }[by];
  const { tenant } = row;
  const own = { id: id ?? "", name: name ?? "–" };
  return tenant === null || tenant === undefined ? own : { id: `${tenant}/${own.id}`, name: `${tenant} / ${own.name}` };
}

export function nameOf(row: UsageRow, by: Group | null): string {
  return memberOf(row, by).name;
}

export function totalsByTenant(rows: readonly UsageRow[]): Map<string, number> {
  return new Map(byGroup(rows, "tenant").map(({ id, figures }) => [id, tokensOf(figures)]));
}

export interface GroupTotals extends Member {
  figures: Totals;
}

/** The largest first. */
export function byGroup(rows: readonly UsageRow[], by: Group | null, metric: Metric = "tokens"): GroupTotals[] {
  const found = new Map<string, GroupTotals>();
  for (const row of rows) {
    const member = memberOf(row, by);
    const before = found.get(member.id)?.figures ?? NOTHING;
    found.set(member.id, { ...member, figures: plus(before, row) });
  }
  return [...found.values()].toSorted(
    (a, b) => measure(b.figures, metric) - measure(a.figures, metric) || a.name.localeCompare(b.name),
  );
}

export const SLOTS = 6;
export const OTHERS = "others";

export interface Column {
  start: number;
  /** In the order of the series; zeros included. */
  parts: number[];
  total: number;
}

export interface Series extends Member {
  paint: string;
}

export interface Chart {
  series: Series[];
  columns: Column[];
  peak: number;
}

/** A column for every bucket, also for those in which nothing was used; the largest groups by themselves. */
export function chartOf(rows: readonly UsageRow[], stretch: Stretch, by: Group | null, metric: Metric): Chart {
  const groups = byGroup(rows, by, metric);
  const isCrowded = groups.length > SLOTS;
  const series: Series[] = groups.slice(0, isCrowded ? SLOTS - 1 : SLOTS).map(({ id, name }, at) => ({
    id,
    name,
    paint: by === null ? "var(--lk-target)" : `var(--lk-tenant-${at + 1})`,
  }));
  if (isCrowded) series.push({ id: OTHERS, name: OTHERS, paint: "var(--lk-others)" });
  const place = new Map(series.map(({ id }, at) => [id, at]));
  const columns = new Map(starts(stretch).map((start) => [start, series.map(() => 0)]));
  for (const row of rows) {
    const parts = columns.get(row.bucket_start);
    const at = place.get(memberOf(row, by).id) ?? series.length - 1;
    if (parts !== undefined) parts[at] = (parts[at] ?? 0) + measure(row, metric);
  }
  const drawn = [...columns].map(([start, parts]) => ({ start, parts, total: parts.reduce((a, b) => a + b, 0) }));
  return { series, columns: drawn, peak: Math.max(0, ...drawn.map(({ total }) => total)) };
}

/** The next round figure at or above: 1, 2, 4, 6, 8, 10, 20, … */
export function roundUp(value: number): number {
  if (value <= 1) return 1;
  const size = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 4, 6, 8, 10].find((step) => step * size >= value) ?? 10) * size;
}
