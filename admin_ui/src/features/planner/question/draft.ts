/** What is typed into the planner's form: texts, and how they become a question. Fields are named as the API names them. */
import type { Workload } from "@/api/types";
import { readAmount } from "@/features/limits/amounts";

import { KNOBS } from "./knobs";

export const LOADS = ["concurrency", "requests_per_s"] as const;
export type Load = (typeof LOADS)[number];

export interface Draft {
  load: Load;
  hasAdapters: boolean;
  live: boolean;
  /** By the field's name; absent = as it was at first. */
  typed: Readonly<Record<string, string>>;
}

/** What the fields start from. Those that are not here start empty: the running engine's, or automatic. */
const START: Readonly<Record<string, string>> = {
  prompt_tokens: "1024",
  output_tokens: "256",
  concurrency: "8",
  requests_per_s: "1",
  "adapters.count": "100",
  "adapters.rank": "16",
};

export const FIRST: Draft = { load: "concurrency", hasAdapters: false, live: false, typed: {} };

export function textOf({ typed }: Draft, field: string): string {
  return typed[field] ?? START[field] ?? "";
}

export type Problems = Readonly<Record<string, string>>;

export type Reading = { question: Workload; problems: null } | { question: null; problems: Problems };

/** The question that the form asks, or what is wrong with it, by field. What is well-formed is the server's to judge. */
export function read(draft: Draft): Reading {
  const problems: Record<string, string> = {};
  const whole = (field: string): number => {
    const value = readAmount(textOf(draft, field), "count");
    if (value === null || value < 1) problems[field] = "A whole number from 1, such as 2,048.";
    return value ?? 0;
  };
  const decimal = (field: string): number => {
    const value = readDecimal(textOf(draft, field));
    if (value === null || value <= 0) problems[field] = "A number above 0, such as 2.5.";
    return value ?? 0;
  };
  const name = (field: string) => textOf(draft, field).trim() || null;
  const question: Workload = {
    model: name("model"),
    device: name("device"),
    prompt_tokens: whole("prompt_tokens"),
    output_tokens: whole("output_tokens"),
    [draft.load]: draft.load === "concurrency" ? whole("concurrency") : decimal("requests_per_s"),
    ...(draft.hasAdapters && { adapters: { count: whole("adapters.count"), rank: whole("adapters.rank") } }),
    knobs: readKnobs(draft, problems),
    live: draft.live,
  };
  return Object.keys(problems).length > 0 ? { question: null, problems } : { question, problems: null };
}

function readKnobs(draft: Draft, problems: Record<string, string>): Record<string, number> {
  const knobs: Record<string, number> = {};
  for (const { name, unit } of KNOBS) {
    const field = `knobs.${name}`;
    const typed = textOf(draft, field);
    if (typed.trim() === "") continue;
    const value = unit === "share" ? readDecimal(typed) : readAmount(typed, unit);
    if (value === null) problems[field] = unit === "bytes" ? "Bytes, such as 4 GiB." : unit === "share" ? "A share, such as 0.9." : "A whole number.";
    else knobs[name] = value;
  }
  return knobs;
}

function readDecimal(typed: string): number | null {
  const match = /^\s*(\d{1,9}(?:\.\d{1,6})?)\s*$/.exec(typed);
  return match === null ? null : Number(match[1]);
}

/** How a draft stands in the address, so that a plan can be linked: only what is not as at first. */
export function addressOf({ load, hasAdapters, live, typed }: Draft): URLSearchParams {
  const address = new URLSearchParams();
  if (load !== FIRST.load) address.set("load", load);
  if (hasAdapters) address.set("adapters", "on");
  if (live) address.set("live", "on");
  for (const [field, text] of Object.entries(typed)) {
    if (text !== (START[field] ?? "")) address.set(field, text);
  }
  return address;
}

export function draftOf(address: URLSearchParams): Draft {
  const fields = [...Object.keys(START), "model", "device", ...KNOBS.map(({ name }) => `knobs.${name}`)];
  const typed = fields.flatMap((field) => {
    const text = address.get(field);
    return text === null ? [] : [[field, text] as const];
  });
  return {
    load: LOADS.find((each) => each === address.get("load")) ?? FIRST.load,
    hasAdapters: address.get("adapters") === "on",
    live: address.get("live") === "on",
    typed: Object.fromEntries(typed),
  };
}
