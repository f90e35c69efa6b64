const DATE = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });

/** Unix seconds → "29 Nov 2025, 17:42" in the reader's time zone. */
export function dateTime(unixSeconds: number): string {
  return DATE.format(new Date(unixSeconds * 1000));
}

/** 3725 s → "1 h 2 min". */
export function duration(seconds: number): string {
  const whole = Math.floor(seconds);
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${whole % 60} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** How far a window reaches back: 60 s → "60 s", 300 s → "5 min". */
export function span(seconds: number): string {
  return seconds < 119.5 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`;
}

/** 0.034 s → "34 ms", 2.25 s → "2.3 s", 90 s → "1 min 30 s". */
export function seconds(value: number): string {
  if (value < 0.9995) return `${Math.round(value * 1000)} ms`;
  return value < 59.95 ? `${value.toFixed(1)} s` : duration(value);
}

/** As `seconds`, for what is compared to the millisecond: 0.00042 s → "0.42 ms", 0.0265 s → "26.5 ms", 2.25 s → "2.25 s". */
export function latency(value: number): string {
  if (value < 0.99995) {
    const ms = value * 1000;
    return `${ms.toFixed(ms >= 99.95 ? 0 : ms >= 9.995 ? 1 : 2)} ms`;
  }
  return value < 9.995 ? `${value.toFixed(2)} s` : seconds(value);
}
