/** Where an adapter can be, from the store to the arena and out of it again. */
export const RESIDENCY = [
  { key: "cold", label: "Cold", color: "gray", meaning: "In the store only: its next request reads it from disk." },
  { key: "loading", label: "Loading", color: "blue", meaning: "On its way: from disk, or from host memory into the arena." },
  { key: "host", label: "Host", color: "yellow", meaning: "Ready in host memory: its next request reads no disk." },
  { key: "resident", label: "Resident", color: "green", meaning: "In the arena: requests run on it at once." },
  { key: "draining", label: "Draining", color: "orange", meaning: "Still in the arena, but it takes no new requests and leaves when its last ends." },
] as const;

/** The state of one adapter as the engine names it; placing is the second half of loading. */
export function residencyOf(state: string) {
  const key = state === "placing" ? "loading" : state;
  return RESIDENCY.find((each) => each.key === key);
}
