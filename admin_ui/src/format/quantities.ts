import { grouped } from "./numbers";

const PREFIXES = ["", "k", "M", "G", "T", "P", "E"] as const;

/** Three significant figures, without an exponent: 0.0123, 1.23, 12.3, 123, 1,234. */
export function significant(value: number): string {
  if (Math.abs(value) >= 99.95) return grouped(Math.round(value));
  return value.toLocaleString("en-GB", { maximumSignificantDigits: 3 });
}

/** 1.46e14, "FLOP/s" → "146 TFLOP/s": three significant figures, decimal prefixes, as devices' rates are told. */
export function scaled(value: number, unit: string): string {
  let size = value;
  let prefix = 0;
  while (Math.abs(size) >= 999.5 && prefix < PREFIXES.length - 1) {
    size /= 1000;
    prefix += 1;
  }
  const digits = Math.abs(size) >= 99.95 || size === 0 ? 0 : Math.abs(size) >= 9.995 ? 1 : 2;
  return `${size.toFixed(digits)} ${PREFIXES[prefix] ?? ""}${unit}`;
}
