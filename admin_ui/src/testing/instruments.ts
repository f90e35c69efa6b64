/** What the engine, the doctor and the planner answer. */
import type { CapacityPlan, EngineReport, Finding, Findings, Latency, Overview, Performance, Phase } from "@/api/types";

function phase(kind: Phase["kind"], fields: Partial<Phase> = {}): Phase {
  const nothing = { steps: 0, seconds: 0, share: 0, tokens: 0, flops_per_s: 0, read_bytes_per_s: 0, mfu: 0, mbu: 0, intensity: 0 };
  return { kind, ...nothing, ...fields };
}

function times(measure: Latency["measure"], kind: Latency["kind"], p50: number, count = 40): Latency {
  return { measure, kind, count, mean: 1.1 * p50, p50, p90: 2 * p50, p99: 4 * p50 };
}

export const performance: Performance = {
  window_s: 60,
  phases: [
    phase("prefill", {
      steps: 20,
      seconds: 6,
      share: 0.1,
      tokens: 40_960,
      flops_per_s: 146e12,
      read_bytes_per_s: 600e9,
      mfu: 0.884,
      mbu: 0.595,
      intensity: 243,
    }),
    phase("decode", {
      steps: 1800,
      seconds: 36,
      share: 0.6,
      tokens: 28_800,
      flops_per_s: 12.3e12,
      read_bytes_per_s: 822.5e9,
      mfu: 0.0745,
      mbu: 0.816,
      intensity: 15,
    }),
    phase("copy", { steps: 3, seconds: 0.06, share: 0.001 }),
  ],
  ridge: 163.9,
  peak_flops: 165.2e12,
  peak_bandwidth: 1008e9,
  device: "RTX 4090",
  latency: [
    times("queue", "all", 0.02),
    times("adapter_wait", "all", 0.001),
    times("prefill", "all", 0.096),
    times("ttft", "all", 0.12),
    times("ttft", "base", 0.11, 30),
    times("ttft", "adapter", 0.3, 10),
    times("itl", "all", 0.0265),
    times("itl", "base", 0.0265),
    times("itl", "adapter", 0, 0),
    times("tpot", "all", 0.027),
    times("e2e", "all", 6.8),
  ],
  tokens_per_step: 38.3,
  read_bytes_per_token: 9.2e8,
  interference: 3.9,
  kv_peak_bytes: 3 * 2 ** 30,
  mfu: 0.3,
  hfu: 0.32,
  timeline: [0, 5, 10].map((after) => ({
    at: 1_700_000_000 + after,
    tokens_per_s: 100 + after,
    mfu: 0.2,
    mbu: 0.5 + after / 100,
    kv_used_share: 0.4,
    running: 8,
    waiting: after,
  })),
};

export function engineReport(fields: Partial<EngineReport> = {}): EngineReport {
  return {
    state: "ready",
    model: "qwen2.5-7b",
    device: "cuda",
    dtype: "bfloat16",
    design: {
      knobs: [
        { name: "max_num_seqs", setting: "LORIKEET_ENGINE__MAX_NUM_SEQS", value: 16, is_automatic: true },
        { name: "kv_cache_bytes", setting: "LORIKEET_ENGINE__KV_CACHE_BYTES", value: 4 * 2 ** 30, is_automatic: false },
        { name: "enable_chunked_prefill", setting: "LORIKEET_ENGINE__ENABLE_CHUNKED_PREFILL", value: true, is_automatic: null },
      ],
      memory: [
        { name: "weights", bytes: 14 * 2 ** 30 },
        { name: "KV pool", bytes: 4 * 2 ** 30 },
        { name: "headroom", bytes: 2 ** 30 },
      ],
      available_bytes: 19 * 2 ** 30,
      n_blocks: 4681,
      block_size: 16,
      block_bytes: 917_504,
      max_model_len: 4096,
      max_num_seqs: 16,
      theoretical_concurrency: 18.3,
      suggested_max_num_seqs: 11,
    },
    performance,
    ...fields,
  };
}

export function engineWithout(state: "starting" | "unavailable"): EngineReport {
  return engineReport({ state, device: null, dtype: null, design: null, performance: null });
}

export function finding(rule: string, fields: Partial<Finding> = {}): Finding {
  return {
    rule,
    severity: "warning",
    title: `The symptom of ${rule}`,
    explanation: "Prompts differ from their first tokens on.",
    evidence: [
      { label: "Prefix hit rate", value: "0.4 %" },
      { label: "First different token", value: "position 3" },
    ],
    cost: { text: "about 31 % of prefill", share: 0.31 },
    remedy: "Put what changes at the end of the prompt.",
    setting: null,
    ...fields,
  };
}

export function findings(...found: Finding[]): Findings {
  return { examined_s: 60, at: 1_700_000_000, findings: found };
}

export const NOTHING_SEEN: Findings = { examined_s: null, at: null, findings: [] };

/** Routes that the overview asks for. */
export function overviewRoutes(overview: Overview, report: EngineReport = engineReport(), doctor: Findings = findings()) {
  return {
    "GET /admin/v1/overview": { body: overview },
    "GET /admin/v1/engine": { body: report },
    "GET /admin/v1/findings": { body: doctor },
  };
}

export function capacityPlan(fields: Partial<CapacityPlan> = {}): CapacityPlan {
  const band = (value: number) => ({ value, low: null, high: null });
  return {
    basis: "formulas",
    model: "qwen3-8b",
    device: "rtx4090",
    memory: [
      { name: "weights", bytes: 15 * 2 ** 30 },
      { name: "KV pool", bytes: 5 * 2 ** 30 },
    ],
    available_bytes: 20 * 2 ** 30,
    request_kv_bytes: 188_743_680,
    pool_tokens: 36_400,
    theoretical_concurrency: 28.4,
    steps: [
      { title: "KV a request", text: "144 KiB a token times 1,280 tokens.", value: "180 MiB" },
      { title: "Theoretical concurrency", text: "5 GiB divided by that.", value: "28" },
    ],
    concurrency_table: {
      contexts: [1024, 32_768],
      concurrencies: [1, 32],
      cells: [
        [
          { bytes: 2 ** 27, fits: true },
          { bytes: 2 ** 32, fits: true },
        ],
        [
          { bytes: 2 ** 32, fits: true },
          { bytes: 2 ** 37, fits: false },
        ],
      ],
    },
    curve: [1, 2, 64].map((batch) => ({
      batch,
      read_bytes_per_token: 15e9 / batch + 3e8,
      itl_s: 0.015 + batch / 10_000,
      output_tokens_per_s: 60 * batch,
      fits: batch < 64,
    })),
    balanced_batch: 50,
    lora: null,
    estimate: { ttft_s: band(0.196), itl_s: band(0.0265), output_tokens_per_s: band(302), total_s: band(6.76) },
    replicas: 2,
    knobs: [
      { name: "max_num_seqs", setting: "LORIKEET_ENGINE__MAX_NUM_SEQS=18", value: 18, why: "65 % of 28" },
      { name: "max_num_batched_tokens", setting: "LORIKEET_ENGINE__MAX_NUM_BATCHED_TOKENS=2048", value: 2048, why: "to be tuned" },
    ],
    notes: ["Prompts share no prefix."],
    calibration: null,
    ...fields,
  };
}
