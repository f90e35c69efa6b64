import { humanBytes } from "@/format/bytes";
import { grouped } from "@/format/numbers";

import type { Unit } from "./dimensions";

const WORDS: readonly (readonly [number, string])[] = [
  [1e12, "trillion"],
  [1e9, "billion"],
  [1e6, "million"],
];
const BINARY: Readonly<Record<string, number>> = { b: 1, kib: 2 ** 10, mib: 2 ** 20, gib: 2 ** 30, tib: 2 ** 40 };
const DECIMAL: Readonly<Record<string, number>> = { k: 1e3, m: 1e6, million: 1e6, bn: 1e9, billion: 1e9, trillion: 1e12 };

/** A limit as people say it: 6,000, "4 million", "50.0 GiB"; exact whenever it is short that way. */
export function amount(value: number, unit: Unit): string {
  if (unit === "bytes") return humanBytes(value);
  for (const [size, word] of WORDS) {
    if (value >= size && value % (size / 10) === 0) return `${grouped(value / size)} ${word}`;
  }
  return grouped(value);
}

/** To the last one, for whoever wants to know: the words above may be rounded. */
export function exactAmount(value: number, unit: Unit): string {
  return unit === "bytes" ? `${grouped(value)} bytes` : grouped(value);
}

/**
 * What was typed, as a whole number: "6,000", "4 million", "1.5m", "50 GiB"; null when it is none.
 * Bytes know only the binary units, counts only the decimal ones.
 */
export function readAmount(typed: string, unit: Unit): number | null {
  const match = /^([0-9][0-9,_ ]*(?:\.[0-9]+)?)\s*([a-z]*)$/.exec(typed.trim().toLowerCase());
  if (match === null) return null;
  const [, figure = "", word = ""] = match;
  const sizes = unit === "bytes" ? BINARY : DECIMAL;
  const size = word === "" ? 1 : sizes[word];
  const value = Number(figure.replace(/[,_ ]/g, "")) * (size ?? Number.NaN);
  return Number.isSafeInteger(value) ? value : null;
}

/** How a value is written into a field, so that it is read back as the same. */
export function writtenAmount(value: number, unit: Unit): string {
  const words = amount(value, unit);
  return readAmount(words, unit) === value ? words : grouped(value);
}

export function amountProblem(typed: string, unit: Unit): string | null {
  if (readAmount(typed, unit) !== null) return null;
  return unit === "bytes" ? "A whole number of bytes, or such as 50 GiB." : "A whole number, such as 6,000 or 4 million.";
}
