/** The kinds of steps and the measured times, in the page's words and in the order of the tables. */
import type { Latency, Performance, Phase } from "@/api/types";

export interface Kind {
  key: string;
  label: string;
  meaning: string;
  paint: string;
}

/** Prefill and decode are two machines: their figures are never averaged into one. */
export const PHASES: readonly Kind[] = [
  {
    key: "prefill",
    label: "Prefill",
    meaning: "Steps that only read prompts. Each byte of the weights serves many tokens, so that arithmetic is what they wait for.",
    paint: "var(--lk-prefill)",
  },
  {
    key: "decode",
    label: "Decode",
    meaning: "Steps that give each running request its next token. Each reads all weights and every context, so that memory is what they wait for.",
    paint: "var(--lk-decode)",
  },
  {
    key: "mixed",
    label: "Mixed",
    meaning: "Steps that read a piece of a prompt beside the next tokens of those who run.",
    paint: "var(--lk-mixed)",
  },
  {
    key: "copy",
    label: "Copy",
    meaning: "Steps that only copied keys and values, to host memory or back. The model did not run.",
    paint: "var(--lk-copy)",
  },
];

export const IDLE: Kind = {
  key: "idle",
  label: "Idle",
  meaning: "No step ran: there was nothing to do, or the engine was between two steps.",
  paint: "var(--lk-free)",
};

export const UTILISATION = {
  mfu: "Model FLOPs utilisation: the arithmetic that the model needs, as a part of what the device could have done in that time.",
  mbu: "Memory bandwidth utilisation: the bytes that had to be read, as a part of what the device could have read in that time.",
};

export function phaseOf(performance: Performance, key: string): Phase | undefined {
  return performance.phases.find(({ kind }) => kind === key);
}

export interface Measure {
  key: string;
  label: string;
  meaning: string;
}

export const MEASURES: readonly Measure[] = [
  { key: "queue", label: "Queue", meaning: "From a request's arrival until it may run, without the wait for its adapter." },
  { key: "adapter_wait", label: "Adapter wait", meaning: "How long a request waited for nothing but its adapter to be in the arena." },
  { key: "prefill", label: "Prefill", meaning: "From its first step to its first token: its prompt is read, perhaps in pieces, beside the others' next tokens." },
  { key: "ttft", label: "First token (TTFT)", meaning: "From a request's arrival to its first token: queue, adapter wait and prefill together." },
  { key: "itl", label: "Next token (ITL)", meaning: "From one token of an answer to its next: the pace a reader sees, and where a long step shows." },
  { key: "tpot", label: "Mean pace (TPOT)", meaning: "A request's time after its first token, divided by the tokens that came in it." },
  { key: "e2e", label: "Whole request", meaning: "From a request's arrival to its last token." },
];

export function measureOf(key: string): Measure {
  return MEASURES.find((measure) => measure.key === key) ?? { key, label: key.replaceAll("_", " "), meaning: "" };
}

export const WHOSE = [
  { key: "all", label: "all" },
  { key: "base", label: "base model" },
  { key: "adapter", label: "adapters" },
] as const;

export function latencyOf({ latency }: Performance, measure: string, whose: string): Latency | undefined {
  const found = latency.find((row) => row.measure === measure && row.kind === whose);
  return found?.count === 0 ? undefined : found;
}
