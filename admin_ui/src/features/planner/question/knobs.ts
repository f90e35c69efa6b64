/** Settings that can be planned with. */
export interface PlannedKnob {
  name: string;
  label: string;
  unit: "count" | "bytes" | "share";
  example: string;
}

export const KNOBS: readonly PlannedKnob[] = [
  { name: "max_num_batched_tokens", label: "Tokens a step", unit: "count", example: "2,048" },
  { name: "max_num_seqs", label: "Seats", unit: "count", example: "32" },
  { name: "kv_cache_bytes", label: "KV pool", unit: "bytes", example: "4 GiB" },
  { name: "block_size", label: "Tokens in a KV block", unit: "count", example: "16" },
  { name: "adapter_pool_bytes", label: "Adapter arena", unit: "bytes", example: "1 GiB" },
  { name: "gpu_memory_utilization", label: "Share of the GPU's memory", unit: "share", example: "0.9" },
];
