import type { Performance } from "@/api/types";
import { StackedBar } from "@/components/figures/stacked-bar";
import { percent } from "@/format/numbers";

import { phaseOf, PHASES } from "./kinds";

/** The part of the window's time in which no step ran. */
export function idleShare(performance: Performance): number {
  return Math.max(0, 1 - busyShare(performance));
}

function busyShare({ phases }: Performance): number {
  return phases.reduce((sum, { share }) => sum + share, 0);
}

/** What the window's time went into, by the kind of step; the rest of the bar is idle. */
export function StepMix({ performance }: { performance: Performance }) {
  const shares = PHASES.map(({ key, label, paint }) => ({ key, label, paint, value: phaseOf(performance, key)?.share ?? 0 }));
  const spoken = shares.map(({ label, value }) => `${label.toLowerCase()} ${percent(value, 1)}`).join(", ");
  return (
    <StackedBar
      label={`Time by kind of step: ${spoken}, idle ${percent(idleShare(performance), 1)}`}
      parts={shares}
      whole={Math.max(1, busyShare(performance))}
    />
  );
}
