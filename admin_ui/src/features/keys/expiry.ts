const DAY_S = 24 * 3600;

/** A day of the calendar, as a date field has it → the end of that day in UTC, as Unix seconds; null for none. */
export function endOfDay(day: string): number | null {
  const start = Date.parse(`${day}T00:00:00Z`);
  return Number.isNaN(start) ? null : start / 1000 + DAY_S;
}

/** The day whose end it is, or that it lies in; empty for never. */
export function dayOf(unixSeconds: number | null): string {
  return unixSeconds === null ? "" : new Date((unixSeconds - 1) * 1000).toISOString().slice(0, 10);
}

export function expiryProblem(day: string, now: number): string | null {
  if (day === "") return null;
  const end = endOfDay(day);
  return end === null || end <= now ? "A day that is not over." : null;
}
