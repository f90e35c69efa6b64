/** What requests took of the engine: sums, and how they are written. */
import type { UsageRow } from "@/api/types";
import { humanBytes } from "@/format/bytes";
import { scaled } from "@/format/quantities";

export type Costs = UsageRow["costs"];

const HOUR = 3600;

export const NO_COSTS: Costs = {
  prefill_flops: 0,
  decode_flops: 0,
  prefill_read_bytes: 0,
  decode_read_bytes: 0,
  write_bytes: 0,
  kv_byte_seconds: 0,
  adapter_byte_seconds: 0,
  load_bytes: 0,
  wasted_flops: 0,
  swap_bytes: 0,
};

export function plusCosts(a: Costs, b: Costs): Costs {
  return {
    prefill_flops: a.prefill_flops + b.prefill_flops,
    decode_flops: a.decode_flops + b.decode_flops,
    prefill_read_bytes: a.prefill_read_bytes + b.prefill_read_bytes,
    decode_read_bytes: a.decode_read_bytes + b.decode_read_bytes,
    write_bytes: a.write_bytes + b.write_bytes,
    kv_byte_seconds: a.kv_byte_seconds + b.kv_byte_seconds,
    adapter_byte_seconds: a.adapter_byte_seconds + b.adapter_byte_seconds,
    load_bytes: a.load_bytes + b.load_bytes,
    wasted_flops: a.wasted_flops + b.wasted_flops,
    swap_bytes: a.swap_bytes + b.swap_bytes,
  };
}

export function flopsOf({ prefill_flops, decode_flops }: Costs): number {
  return prefill_flops + decode_flops;
}

export function readOf({ prefill_read_bytes, decode_read_bytes }: Costs): number {
  return prefill_read_bytes + decode_read_bytes;
}

/** 1.5e12 → "1.50 TFLOP". */
export function flops(value: number): string {
  return scaled(value, "FLOP");
}

/** Estimates have fractions of bytes. */
export function wholeBytes(value: number): string {
  return humanBytes(Math.round(value));
}

/** Memory times how long, in hours: a GiB held for 90 minutes → "1.50 GiB·h". */
export function byteHours(byteSeconds: number): string {
  return `${wholeBytes(byteSeconds / HOUR)}·h`;
}
