import { Group, Text } from "@mantine/core";

import type { Moment, Performance } from "@/api/types";
import { Empty } from "@/components/feedback/empty";
import { Sparkline } from "@/components/figures/sparkline";
import { Panel } from "@/components/layout/panel";
import { grouped, percent, rate } from "@/format/numbers";

const WINDOW_MS = 300_000;

interface Line {
  key: string;
  label: string;
  of: (moment: Moment) => number;
  written: (value: number) => string;
  /** The scale's top at least, so that next to nothing looks like it. */
  least: number;
}

const share = (value: number) => percent(value, 1);

const LINES: readonly Line[] = [
  { key: "tokens", label: "Tokens/s", of: ({ tokens_per_s }) => tokens_per_s, written: rate, least: 1 },
  { key: "mfu", label: "MFU", of: ({ mfu }) => mfu, written: share, least: 0.01 },
  { key: "mbu", label: "MBU", of: ({ mbu }) => mbu, written: share, least: 0.01 },
  { key: "kv", label: "KV in use", of: ({ kv_used_share }) => kv_used_share, written: share, least: 0.01 },
  { key: "running", label: "Running", of: ({ running }) => running, written: grouped, least: 1 },
  { key: "waiting", label: "Waiting", of: ({ waiting }) => waiting, written: grouped, least: 1 },
];

/** The last five minutes, one small picture a figure. */
export function TimelinesPanel({ performance: { timeline } }: { performance: Performance }) {
  return (
    <Panel title="Last five minutes" testId="timelines">
      {timeline.length === 0 ? (
        <Empty title="Too little seen yet" />
      ) : (
        <div className="timelines">
          {LINES.map((line) => (
            <TimeLine key={line.key} line={line} timeline={timeline} />
          ))}
        </div>
      )}
    </Panel>
  );
}

function TimeLine({ line, timeline }: { line: Line; timeline: readonly Moment[] }) {
  const { key, label, of, written, least } = line;
  const samples = timeline.map((moment) => ({ at: moment.at * 1000, value: of(moment) }));
  const now = samples.at(-1)?.value ?? 0;
  const peak = Math.max(...samples.map(({ value }) => value));
  return (
    <div data-testid={`timeline-${key}`}>
      <Group justify="space-between" gap="xs" wrap="nowrap" align="baseline">
        <Text fz="sm" c="dimmed" truncate>
          {label}
        </Text>
        <Text fz="sm" fw={600} style={{ whiteSpace: "nowrap" }}>
          {written(now)}
        </Text>
      </Group>
      <Sparkline
        samples={samples}
        windowMs={WINDOW_MS}
        least={least}
        height={44}
        label={`${label}, last five minutes: now ${written(now)}, peak ${written(peak)}`}
      />
      <Text fz="xs" c="dimmed" ta="right">
        peak {written(peak)}
      </Text>
    </div>
  );
}
