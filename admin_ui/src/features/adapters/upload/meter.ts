/** How fast bytes go, over the last few seconds, and how long the rest takes at that pace. */

const WINDOW_MS = 5000;
/** Before that, a rate is noise. */
const LEAST_MS = 500;

export interface Meter {
  samples: readonly { at: number; bytes: number }[];
}

export const EMPTY_METER: Meter = { samples: [] };

/** `bytes` is the total so far; one that goes back (a slice that has to be sent again) starts the meter anew. */
export function advance({ samples }: Meter, at: number, bytes: number): Meter {
  const last = samples.at(-1);
  if (last !== undefined && bytes < last.bytes) return { samples: [{ at, bytes }] };
  return { samples: [...samples.filter((sample) => at - sample.at <= WINDOW_MS), { at, bytes }] };
}

/** Bytes a second; null while it is too early to tell. */
export function bytesPerSecond({ samples }: Meter): number | null {
  const [first, last] = [samples[0], samples.at(-1)];
  if (first === undefined || last === undefined || last.at - first.at < LEAST_MS) return null;
  return ((last.bytes - first.bytes) / (last.at - first.at)) * 1000;
}

/** Seconds; null while nothing moves. */
export function secondsLeft(meter: Meter, remaining: number): number | null {
  const rate = bytesPerSecond(meter);
  return rate === null || rate <= 0 ? null : remaining / rate;
}
