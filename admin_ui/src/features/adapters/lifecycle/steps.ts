/** What can be done to a version in its state, and why something can't; the server has the last say. */
import type { Alias, Version } from "@/api/types";

import { isBeingDeleted } from "../states";

export type StepKind = "restore" | "release" | "retry" | "retire" | "quarantine" | "delete";

export interface Step {
  kind: StepKind;
  label: string;
  /** A sentence, when it can't be done now; such a step is shown, but disabled. */
  obstacle: string | null;
}

const LABELS: Record<StepKind, string> = {
  restore: "Restore",
  release: "Release",
  retry: "Check again",
  retire: "Retire",
  quarantine: "Quarantine",
  delete: "Delete",
};

/** Which steps make sense at all, by state; the others aren't shown. */
const STEPS: Record<Version["state"], readonly StepKind[]> = {
  validating: ["delete"],
  ready: ["retire", "quarantine", "delete"],
  rejected: ["delete"],
  failed_internal: ["retry", "delete"],
  retired: ["restore", "quarantine", "delete"],
  quarantined: ["release", "delete"],
  purged: [],
};

export function pointingAt(version: Version, aliases: readonly Alias[]): string[] {
  return aliases.filter(({ targets }) => targets.some((target) => target.version === version.number)).map(({ alias }) => alias);
}

export function stepsOf(version: Version, aliases: readonly Alias[], nowSeconds: number): Step[] {
  return STEPS[version.state].map((kind) => ({
    kind,
    label: LABELS[kind],
    obstacle: obstacleTo(kind, version, pointingAt(version, aliases), nowSeconds),
  }));
}

function obstacleTo(kind: StepKind, version: Version, aliases: readonly string[], nowSeconds: number): string | null {
  if (kind === "retire" || kind === "delete") {
    if (version.state === "validating") return "It is being validated. Wait for the verdict.";
    if (aliases.length > 0) {
      const verb = aliases.length === 1 ? "points" : "point";
      return `${aliases.join(", ")} ${verb} at it. Point ${aliases.length === 1 ? "it" : "them"} elsewhere first.`;
    }
  }
  return isBeingDeleted(version, nowSeconds) ? "Its files are being removed." : null;
}

/** Why some of the steps can't be taken now, the steps with the same reason together. */
export function obstaclesAmong(steps: readonly Step[]): { steps: string; why: string }[] {
  const byWhy = new Map<string, string[]>();
  for (const { label, obstacle } of steps) {
    if (obstacle !== null) byWhy.set(obstacle, [...(byWhy.get(obstacle) ?? []), label]);
  }
  return [...byWhy].map(([why, labels]) => ({ steps: labels.join(" and "), why }));
}

interface Words {
  title: string;
  sentence: string;
  danger: boolean;
  takesReason: boolean;
  takesForce: boolean;
  done: string;
}

/** What a step does, said before it is taken. */
export function wordsOf(kind: StepKind, version: Version, aliases: readonly string[]): Words {
  const it = `${version.adapter}:${version.number}`;
  const plain = { danger: false, takesReason: false, takesForce: false };
  switch (kind) {
    case "restore":
      return { ...plain, title: `Restore ${it}`, sentence: "The engine loads it first; then it can be served again.", done: `${it} is back.` };
    case "release":
      return {
        ...plain,
        title: `Release ${it}`,
        sentence: "The engine loads it first; then it can be served again. Aliases stay where they are now.",
        done: `${it} is released.`,
      };
    case "retry":
      return { ...plain, title: `Check ${it} again`, sentence: "Its files are checked anew from the start.", done: `${it} is checked again.` };
    case "retire":
      return {
        ...plain,
        title: `Retire ${it}`,
        sentence: "It takes no new requests; what runs on it ends in peace, within two minutes. It can be restored for a week.",
        takesReason: true,
        takesForce: true,
        done: `${it} is retired.`,
      };
    case "quarantine":
      return {
        title: `Quarantine ${it}`,
        sentence: quarantineSentence(aliases),
        danger: true,
        takesReason: true,
        takesForce: false,
        done: `${it} is quarantined.`,
      };
    case "delete":
      return {
        ...plain,
        title: `Delete ${it}?`,
        sentence: "Its files are removed as soon as nothing runs on it. This can't be undone; the number isn't given again.",
        danger: true,
        done: `${it} is being deleted.`,
      };
  }
}

function quarantineSentence(aliases: readonly string[]): string {
  const ends = "What runs on it ends with an error within seconds, and nobody but an administrator brings it back.";
  if (aliases.length === 0) return ends;
  const verb = aliases.length === 1 ? "goes" : "go";
  return `${ends} ${aliases.join(", ")} ${verb} back to the last revision without it that can be served.`;
}
