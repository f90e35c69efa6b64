import type { Draft } from "./draft";
import { KNOBS } from "./knobs";

const ALWAYS: ReadonlySet<string> = new Set([
  "model",
  "device",
  "prompt_tokens",
  "output_tokens",
  "live",
  ...KNOBS.map(({ name }) => `knobs.${name}`),
]);
const OF_ADAPTERS: ReadonlySet<string> = new Set(["adapters.count", "adapters.rank"]);

/** The field at which a refusal is shown, by what the API says is at fault; null when no field on screen is it. */
export function fieldOf(param: string | null, draft: Draft): string | null {
  if (param === null) return null;
  // The load is one question with two ways to put it.
  if (param === "concurrency" || param === "requests_per_s") return draft.load;
  if (param === "adapters" || param.startsWith("adapters.")) {
    return draft.hasAdapters && OF_ADAPTERS.has(param) ? param : "adapters";
  }
  return ALWAYS.has(param) ? param : null;
}
