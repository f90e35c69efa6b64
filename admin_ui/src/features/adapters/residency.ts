import type { Engine, Version } from "@/api/types";
import { residencyOf } from "@/features/overview/adapters/states";

/** The overview names at most this many adapters; beyond it, one that is not named may be anywhere. */
const MOST_NAMED = 100;
/** From the farthest to the nearest. */
const NEARNESS = ["cold", "draining", "host", "loading", "resident"] as const;

export interface Residence {
  key: (typeof NEARNESS)[number];
  label: string;
  color: string;
  /** Requests a minute that started on it of late. */
  heat: number;
}

const COLD: Residence = { key: "cold", label: "Cold", color: "gray", heat: 0 };

/** Where the engine has a version, by its content; null where that is not known. */
export function residence(engine: Engine | undefined, slug: string, version: Version): Residence | null {
  if (engine?.state !== "ready" || version.state !== "ready" || version.digest === null) return null;
  const known = engine.adapters.find(({ tenant, digest }) => tenant === slug && digest === version.digest);
  if (known === undefined) return engine.adapters.length < MOST_NAMED ? COLD : null;
  const look = residencyOf(known.state);
  return look === undefined ? null : { key: look.key, label: look.label, color: look.color, heat: known.heat };
}

/** An adapter is as near as its nearest version, and as warm as all of them together; equal contents count once. */
export function residenceOfAdapter(engine: Engine | undefined, slug: string, versions: readonly Version[]): Residence | null {
  const byContent = new Map(versions.map((version) => [version.digest, version]));
  const found = [...byContent.values()].map((version) => residence(engine, slug, version)).filter((each) => each !== null);
  if (found.length === 0) return null;
  const nearest = found.reduce((a, b) => (NEARNESS.indexOf(b.key) > NEARNESS.indexOf(a.key) ? b : a));
  return { ...nearest, heat: found.reduce((sum, { heat }) => sum + heat, 0) };
}
