/** Where steps stand under a device's roof, on two logarithmic axes. Knows no colours and no words. */
import type { Performance, Phase } from "@/api/types";

export interface Roof {
  peakFlops: number;
  peakBandwidth: number;
  /** FLOPs a byte at which both limits meet. */
  ridge: number;
}

export function roofOf({ peak_flops, peak_bandwidth, ridge }: Performance): Roof {
  return { peakFlops: peak_flops, peakBandwidth: peak_bandwidth, ridge };
}

/** The most arithmetic a second that steps of an intensity can do. */
export function attainable({ peakFlops, peakBandwidth }: Roof, intensity: number): number {
  return Math.min(peakFlops, intensity * peakBandwidth);
}

export interface Axis {
  /** Whole powers of ten. */
  low: number;
  high: number;
}

/** Whole decades around positive values, with room on both sides. */
export function decades(values: readonly number[], room = 1.5): Axis {
  const low = Math.floor(Math.log10(Math.min(...values) / room));
  const high = Math.ceil(Math.log10(Math.max(...values) * room));
  return { low, high };
}

/** 0 at the axis's low end, 1 at its high end. */
export function along({ low, high }: Axis, value: number): number {
  return (Math.log10(value) - low) / (high - low);
}

export function ticks({ low, high }: Axis): number[] {
  return Array.from({ length: high - low + 1 }, (_, at) => 10 ** (low + at));
}

/** Kinds of steps that ran and computed something. */
export function drawn(performance: Performance): Phase[] {
  return performance.phases.filter(({ steps, intensity, flops_per_s }) => steps > 0 && intensity > 0 && flops_per_s > 0);
}
