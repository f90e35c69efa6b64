/** What can be limited, in the page's words and in the order of the table. The server's list has the last say. */
export type Unit = "per minute" | "at once" | "tokens" | "bytes" | "count";

export interface Dimension {
  name: string;
  label: string;
  help: string;
  unit: Unit;
  hasBurst: boolean;
  /** Whether one key alone can be limited in it; the others are of the tenant as a whole. */
  isOfKey: boolean;
}

interface Traits {
  hasBurst?: boolean;
  isOfKey?: boolean;
}

function dimension(name: string, label: string, unit: Unit, help: string, traits: Traits = {}): Dimension {
  const { hasBurst = false, isOfKey = true } = traits;
  return { name, label, help, unit, hasBurst, isOfKey };
}

const RATE = { hasBurst: true };
const OF_TENANT = { isOfKey: false };

export const DIMENSIONS: readonly Dimension[] = [
  dimension("rpm", "Requests a minute", "per minute", "Requests that may come in a minute; the burst may come at once.", RATE),
  dimension(
    "tpm",
    "Tokens a minute",
    "per minute",
    "Prompt and answer tokens of a minute. A request counts with all it may use until it ends, then with what it used.",
    RATE,
  ),
  dimension("monthly_tokens", "Tokens a month", "tokens", "The budget of a calendar month (UTC)."),
  dimension("concurrent", "Running requests", "at once", "Requests that the engine may work on at once."),
  dimension("queue_depth", "Waiting requests", "at once", "Requests that may wait for the engine."),
  dimension("max_context", "Context of a request", "tokens", "Prompt and answer of one request together."),
  dimension("max_output_tokens", "Answer of a request", "tokens", "The largest max_tokens of one request."),
  dimension("max_n", "Answers of a request", "count", "The largest n of one request."),
  dimension("adapters", "Adapters", "count", "Adapters that the tenant may have.", OF_TENANT),
  dimension("adapter_bytes", "Bytes of adapters", "bytes", "Files of all adapters together.", OF_TENANT),
  dimension("open_uploads", "Open uploads", "count", "Uploads that may be under way.", OF_TENANT),
  dimension(
    "upload_inflight_bytes",
    "Bytes being uploaded",
    "bytes",
    "What uploads that are under way may hold together.",
    OF_TENANT,
  ),
  dimension("keys", "Keys", "count", "Active keys that the tenant may have.", OF_TENANT),
];

/** One that this page does not know yet is still shown, by its own name. */
export function dimensionOf(name: string): Dimension {
  return DIMENSIONS.find((each) => each.name === name) ?? dimension(name, name, "count", "");
}

/** By the table's order; what the page does not know comes last. */
export function inOrder(names: readonly string[]): Dimension[] {
  const known = DIMENSIONS.filter(({ name }) => names.includes(name));
  const unknown = names.filter((name) => !DIMENSIONS.some((each) => each.name === name)).toSorted();
  return [...known, ...unknown.map(dimensionOf)];
}
