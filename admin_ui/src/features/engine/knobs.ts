/** What an engine's settings do, in a sentence each, and how their values are written. */
import { humanBytes } from "@/format/bytes";
import { grouped } from "@/format/numbers";
import { significant } from "@/format/quantities";

const MEANINGS: Readonly<Record<string, string>> = {
  device: "Where the model runs.",
  dtype: "The type of the weights and of everything computed.",
  quantization: "Whether weights are kept as integers with a scale for each output.",
  threads: "Processor threads that compute.",
  max_model_len: "The longest prompt and answer together, in tokens.",
  max_num_seqs: "Requests that run at once. More share each reading of the weights, until the KV pool is full.",
  max_num_batched_tokens: "Tokens that a step computes at most. Larger: prompts are read faster. Smaller: running requests get their next tokens more evenly.",
  gpu_memory_utilization: "The part of the GPU's memory that the engine may take in all.",
  kv_cache_bytes: "Size of the KV pool.",
  block_size: "Tokens in one KV block: whole blocks are handed out, and found again by the prefix cache.",
  adapter_pool_bytes: "Size of the arena that adapters run in.",
  max_adapters_per_step: "Different adapters that one step may run.",
  max_rank: "The largest rank of an adapter that is taken.",
  enable_prefix_caching: "Whether prompts that begin alike are computed once.",
  enable_chunked_prefill: "Whether a long prompt is read in pieces beside the next tokens of others.",
  swap_space: "Host memory for the KV blocks of preempted requests; without any they are computed again.",
  preemption: "How room is made when the KV pool is full: by swapping, by computing again, or by what costs less.",
  host_adapter_cache_bytes: "Adapters kept in host memory, so that a reload reads no disk.",
  max_queued_requests: "Requests that may wait.",
  max_queued_tokens: "Prompt tokens that may wait.",
  ttft_deadline: "Seconds within which a request must get its first token, or it is refused or dropped.",
  tenant_queue_share: "The part of the queue that one tenant may fill.",
  tenant_seat_share: "The part of the seats that one tenant may take.",
  tenant_kv_share: "The part of the KV pool that one tenant may take.",
  tenant_arena_share: "The part of the adapter arena that one tenant may take.",
};

export function meaningOf(name: string): string | undefined {
  return MEANINGS[name];
}

export type KnobValue = string | number | boolean;

const IN_BYTES = /_bytes$|^swap_space$/;

/** As people read it: bytes in binary units, switches as words. */
export function writtenValue(name: string, value: KnobValue): string {
  if (typeof value === "boolean") return value ? "on" : "off";
  if (typeof value === "string") return value === "" ? "–" : value;
  if (IN_BYTES.test(name)) return humanBytes(value);
  return Number.isInteger(value) ? grouped(value) : significant(value);
}

/** The exact value, where the written one is shorter. */
export function exactValue(name: string, value: KnobValue): string | undefined {
  return typeof value === "number" && IN_BYTES.test(name) ? `${grouped(value)} bytes` : undefined;
}
