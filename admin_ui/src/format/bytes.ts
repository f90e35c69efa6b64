const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"] as const;

/** 1536 → "1.50 KiB": three significant figures, binary units. */
export function humanBytes(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (Math.abs(value) >= 1023.5 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  if (unit === 0) return `${value} B`;
  const digits = Math.abs(value) >= 99.95 ? 0 : Math.abs(value) >= 9.995 ? 1 : 2;
  return `${value.toFixed(digits)} ${UNITS[unit] ?? ""}`;
}
