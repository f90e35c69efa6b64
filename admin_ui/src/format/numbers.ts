const GROUPED = new Intl.NumberFormat("en-GB");

/** 1234567 → "1,234,567". */
export function grouped(value: number): string {
  return GROUPED.format(value);
}

/** One decimal below a hundred, none above: a rate that changes every two seconds should not dance. */
export function rate(value: number): string {
  return value < 99.95 ? value.toFixed(1) : grouped(Math.round(value));
}

export function percent(part: number, whole: number): string {
  if (whole === 0) return "–";
  const share = (100 * part) / whole;
  return share > 0 && share < 0.1 ? "<0.1 %" : `${share.toFixed(1)} %`;
}

/** "3 keys", "1 key". */
export function counted(n: number, noun: string): string {
  return `${grouped(n)} ${noun}${n === 1 ? "" : "s"}`;
}

/** A tenant's weight as it was given: 1, 0.5, 12.25. */
export function weight(value: number): string {
  return value.toLocaleString("en-GB", { maximumFractionDigits: 6 });
}

/** A small figure by its size: 0.0123 → "0.0123", 0.0000123 → "1.2e-5". */
export function tiny(value: number): string {
  if (value === 0) return "0";
  return Math.abs(value) < 0.001 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
}
