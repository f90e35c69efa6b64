/** Stretches of time that end now, cut into hours or days (UTC). Times are whole Unix seconds. */
const HOUR = 3600;
const DAY = 24 * HOUR;

export type Bucket = "1h" | "1d";

export const BUCKETS: readonly { value: Bucket; label: string; seconds: number }[] = [
  { value: "1h", label: "By hour", seconds: HOUR },
  { value: "1d", label: "By day", seconds: DAY },
];

export const PERIODS = [
  { value: "24h", label: "Last 24 hours", seconds: DAY },
  { value: "7d", label: "Last 7 days", seconds: 7 * DAY },
  { value: "30d", label: "Last 30 days", seconds: 30 * DAY },
  { value: "90d", label: "Last 90 days", seconds: 90 * DAY },
] as const;
export type Period = (typeof PERIODS)[number]["value"];

/** More columns than this are no picture any more. */
export const MOST_HOURS = 7 * 24;

export interface Stretch {
  start: number;
  end: number;
  bucket: Bucket;
}

export function bucketSeconds(bucket: Bucket): number {
  return bucket === "1h" ? HOUR : DAY;
}

export function periodSeconds(period: Period): number {
  return PERIODS.find(({ value }) => value === period)?.seconds ?? DAY;
}

/** Long periods are shown by day, whatever was asked. */
export function bucketFor(period: Period, wished: Bucket): Bucket {
  return periodSeconds(period) / HOUR > MOST_HOURS ? "1d" : wished;
}

/** Whole buckets; the last one is that of `now`. */
export function stretch(period: Period, wished: Bucket, now: number): Stretch {
  const bucket = bucketFor(period, wished);
  const length = bucketSeconds(bucket);
  const end = now - (now % length) + length;
  return { start: end - Math.max(periodSeconds(period), length), end, bucket };
}

/** The month of `now` so far, by day. */
export function monthSoFar(now: number): Stretch {
  const date = new Date(now * 1000);
  const start = Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), 1) / 1000;
  return { start, end: now - (now % DAY) + DAY, bucket: "1d" };
}

/** Where the buckets begin. */
export function starts({ start, end, bucket }: Stretch): number[] {
  const length = bucketSeconds(bucket);
  return Array.from({ length: Math.round((end - start) / length) }, (_, at) => start + at * length);
}

const HOUR_LABEL = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", timeZone: "UTC" });
const DAY_LABEL = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });

/** "30 Nov, 06:00" or "30 Nov", in UTC like the buckets. */
export function bucketLabel(start: number, bucket: Bucket): string {
  return (bucket === "1h" ? HOUR_LABEL : DAY_LABEL).format(new Date(start * 1000));
}
