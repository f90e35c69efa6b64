/** A certificate's figures in words: what they mean beside what is allowed. */
import type { Certificate } from "@/api/types";

/** Below it, an adapter's answers are the base model's, up to rounding. */
const NO_EFFECT = 1e-5;
const STRONG_EFFECT = 0.1;

export function effectWord(effect: number): "no effect" | "small effect" | "strong effect" {
  if (effect < NO_EFFECT) return "no effect";
  return effect < STRONG_EFFECT ? "small effect" : "strong effect";
}

/** The difference from PEFT as a share of the largest logit; null where PEFT wasn't asked. */
export function relativeDifference({ max_logit_difference, logit_scale }: Certificate): number | null {
  if (max_logit_difference === null || logit_scale === null || logit_scale === 0) return null;
  return max_logit_difference / logit_scale;
}

/** "self_attn.q_proj" → "q". */
export function shortModule(name: string): string {
  return name.replace(/^(self_attn|mlp)\./, "").replace(/_proj$/, "");
}

export interface ModuleRow {
  module: string;
  layers: number;
}

/** In the order in which a layer uses them; modules of another kind come last, by name. */
const ORDER = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];

export function moduleRows(modules: Certificate["modules"]): ModuleRow[] {
  const place = (module: string) => {
    const at = ORDER.findIndex((name) => module.endsWith(name));
    return at < 0 ? ORDER.length : at;
  };
  return Object.entries(modules)
    .map(([module, layers]) => ({ module, layers }))
    .toSorted((a, b) => place(a.module) - place(b.module) || a.module.localeCompare(b.module));
}

/** [rank, pairs], the smallest rank first. */
export function rankRows(ranks: Certificate["ranks"]): [number, number][] {
  return Object.entries(ranks)
    .map(([rank, pairs]): [number, number] => [Number(rank), pairs])
    .toSorted(([a], [b]) => a - b);
}

export interface ConfigRow {
  field: string;
  value: string;
}

/** A configuration's fields by name: those that say something, and those that are off or empty. */
export function configRows(config: Readonly<Record<string, unknown>>): { said: ConfigRow[]; empty: ConfigRow[] } {
  const rows = Object.entries(config).toSorted(([a], [b]) => a.localeCompare(b));
  const shown = rows.map(([field, value]) => ({ field, value: inWords(value), isEmpty: isEmpty(value) }));
  return {
    said: shown.filter(({ isEmpty }) => !isEmpty).map(({ field, value }) => ({ field, value })),
    empty: shown.filter(({ isEmpty }) => isEmpty).map(({ field, value }) => ({ field, value })),
  };
}

function isEmpty(value: unknown): boolean {
  if (value === null || value === false || value === "") return true;
  return typeof value === "object" && Object.keys(value).length === 0;
}

function inWords(value: unknown): string {
  if (typeof value === "string") return value === "" ? '""' : value;
  if (Array.isArray(value) && value.every((each) => typeof each === "string" || typeof each === "number")) {
    return value.length === 0 ? "[]" : value.join(", ");
  }
  return JSON.stringify(value);
}
