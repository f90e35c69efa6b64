/** Which files of a folder that PEFT saved make up an adapter, and which stay where they are. */

const CONFIG = "adapter_config.json";
const WEIGHTS = "adapter_model.safetensors";
const INDEX = `${WEIGHTS}.index.json`;
const SHARD = /^adapter_model-(\d{5})-of-(\d{5})\.safetensors$/;
const NAME = /^[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?$/;

interface Named {
  name: string;
}

export interface FileSet<Item extends Named> {
  /** In the order in which they are sent: the small ones that can be wrong first. */
  sent: Item[];
  notSent: { name: string; why: string }[];
  /** Why they can't be sent yet, as a sentence; null when they are an adapter. */
  problem: string | null;
}

function isPart(name: string): boolean {
  return [CONFIG, WEIGHTS, INDEX].includes(name) || SHARD.test(name);
}

function whyNot(name: string): string {
  if (name === "adapter_model.bin") return "not safetensors; convert it first: lorikeet adapters convert";
  return /\.(bin|pt|pth|pkl)$/.test(name) ? "not safetensors" : "no part of an adapter";
}

/** Files chosen later replace earlier ones of the same name. */
export function fileSet<Item extends Named>(files: readonly Item[]): FileSet<Item> {
  const newest = [...new Map(files.map((file) => [file.name, file])).values()].toSorted((a, b) => a.name.localeCompare(b.name));
  const isShard = ({ name }: Item) => SHARD.test(name) || name === WEIGHTS;
  const parts = newest.filter(({ name }) => isPart(name));
  return {
    sent: [...parts.filter((part) => !isShard(part)), ...parts.filter(isShard)],
    notSent: newest.filter(({ name }) => !isPart(name)).map(({ name }) => ({ name, why: whyNot(name) })),
    problem: problemOf(new Set(parts.map(({ name }) => name))),
  };
}

function problemOf(names: ReadonlySet<string>): string | null {
  const shards = [...names].filter((name) => SHARD.test(name)).toSorted();
  if (!names.has(CONFIG)) return `${CONFIG} is missing: the file that PEFT writes beside the weights.`;
  if (shards.length === 0 && !names.has(INDEX)) {
    return names.has(WEIGHTS) ? null : `${WEIGHTS} is missing, or its shards with their index.`;
  }
  if (names.has(WEIGHTS)) return "The weights are there twice: in one file and in shards.";
  if (!names.has(INDEX)) return `${INDEX} is missing: the index that is written beside the shards.`;
  const count = Number(shards[0]?.match(SHARD)?.[2] ?? 0);
  const wanted = Array.from({ length: count }, (_, at) => shardName(at + 1, count));
  const missing = wanted.find((name) => !names.has(name));
  if (count === 0 || missing !== undefined) return `${missing ?? "Every shard"} is missing.`;
  return shards.length === count ? null : "The shards are of two adapters.";
}

function shardName(number: number, count: number): string {
  const padded = (value: number) => String(value).padStart(5, "0");
  return `adapter_model-${padded(number)}-of-${padded(count)}.safetensors`;
}

/** The server's rule in the page's words; the server has the last say. */
export function nameProblem(name: string): string | null {
  if (name === "") return "Give the adapter a name.";
  if (NAME.test(name) && !name.includes("..")) return null;
  if (name.length > 64) return "At most 64 characters.";
  if (/[^a-z0-9._-]/.test(name)) return "Lower-case letters, digits, dots, underscores and hyphens only.";
  return name.includes("..") ? "No two dots in a row." : "Starts and ends with a letter or a digit.";
}
