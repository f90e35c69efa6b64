import { Stack, Text } from "@mantine/core";

import type { Performance } from "@/api/types";
import { Swatch } from "@/components/figures/stacked-bar";
import { Panel } from "@/components/layout/panel";
import { percent } from "@/format/numbers";
import { scaled, significant } from "@/format/quantities";
import { PHASES } from "@/features/performance/kinds";

import { attainable, drawn, roofOf } from "./roof";
import { Roofline } from "./roofline";

const HELP =
  "What the device can do at most: below the ridge each byte read allows only so much arithmetic, above it the arithmetic " +
  "units are the limit. Both axes are logarithmic.";

/** What each kind of step waits for, and how near it comes to what the device can do. */
export function RooflinePanel({ performance }: { performance: Performance }) {
  const { device, peak_flops, peak_bandwidth } = performance;
  return (
    <Panel title="Roofline" help={HELP} note={device} testId="roofline">
      <Stack gap="xs">
        <Roofline performance={performance} />
        <Verdicts performance={performance} />
        <Text fz="xs" c="dimmed">
          {device}: {scaled(peak_flops, "FLOP/s")}, {scaled(peak_bandwidth, "B/s")}.
        </Text>
      </Stack>
    </Panel>
  );
}

function Verdicts({ performance }: { performance: Performance }) {
  const roof = roofOf(performance);
  const phases = drawn(performance);
  if (phases.length === 0) {
    return (
      <Text fz="sm" c="dimmed">
        No step ran in this window.
      </Text>
    );
  }
  return (
    <ul className="verdicts">
      {PHASES.flatMap(({ key, label, paint }) => {
        const phase = phases.find(({ kind }) => kind === key);
        if (phase === undefined) return [];
        const waitsFor = phase.intensity < roof.ridge ? "memory" : "arithmetic";
        return (
          <li key={key} data-verdict={key}>
            <Swatch paint={paint} />
            <span>
              {label} waits for {waitsFor}: {significant(phase.intensity)} FLOPs a byte,{" "}
              {percent(phase.flops_per_s, attainable(roof, phase.intensity))} of the roof there
            </span>
          </li>
        );
      })}
    </ul>
  );
}
