import { Group, Text } from "@mantine/core";
import { useState } from "react";

import { Swatch } from "@/components/figures/stacked-bar";
import { grouped } from "@/format/numbers";
import { amount } from "@/features/limits/amounts";

import { bucketLabel, type Bucket } from "./periods";
import { roundUp, type Chart, type Column, type Metric } from "./series";

interface UsageChartProps {
  chart: Chart;
  bucket: Bucket;
  metric: Metric;
}

/** Into how many steps the scale may be cut, so that each is a whole figure. */
const STEPS = [4, 2, 1];

/**
 * A column for every bucket, its groups on top of each other. What is under the pointer is read out below, where its
 * place is kept; the table beside the chart has the same figures for everybody.
 */
export default function UsageChart({ chart, bucket, metric }: UsageChartProps) {
  const [at, setAt] = useState<number | null>(null);
  const top = roundUp(chart.peak);
  const pointed = at === null ? undefined : chart.columns[at];
  const label = `${metric} ${bucket === "1h" ? "by hour" : "by day"}, at most ${grouped(chart.peak)}`;
  return (
    <div className="usage-chart">
      <div className="usage-plot" role="img" aria-label={label}>
        <Scale top={top} />
        <div
          className="usage-columns"
          data-testid="usage-columns"
          onMouseLeave={() => {
            setAt(null);
          }}
        >
          {chart.columns.map((column, index) => (
            <div
              key={column.start}
              className="usage-column"
              data-pointed={index === at || undefined}
              onMouseEnter={() => {
                setAt(index);
              }}
            >
              {column.parts.map((value, part) => {
                const series = chart.series[part];
                if (series === undefined || value === 0) return null;
                return <span key={series.id} style={{ height: `${(100 * value) / top}%`, background: series.paint }} />;
              })}
            </div>
          ))}
        </div>
      </div>
      <Dates columns={chart.columns} bucket={bucket} />
      <Legend chart={chart} pointed={pointed} bucket={bucket} />
    </div>
  );
}

function Scale({ top }: { top: number }) {
  const steps = STEPS.find((count) => top % count === 0) ?? 1;
  const ticks = Array.from({ length: steps + 1 }, (_, at) => (top * at) / steps);
  return (
    <>
      {ticks.map((value) => (
        <div key={value} className="usage-tick" style={{ bottom: `${(100 * value) / top}%` }}>
          <Text span fz="xs" c="dimmed">
            {amount(value, "count")}
          </Text>
        </div>
      ))}
    </>
  );
}

function Dates({ columns, bucket }: { columns: readonly Column[]; bucket: Bucket }) {
  const marks = [columns[0], columns[Math.floor(columns.length / 2)], columns.at(-1)];
  return (
    <div className="usage-dates">
      {marks.map((column, at) => (
        <Text key={at} span fz="xs" c="dimmed">
          {column && bucketLabel(column.start, bucket)}
        </Text>
      ))}
    </div>
  );
}

interface LegendProps {
  chart: Chart;
  pointed: Column | undefined;
  bucket: Bucket;
}

/** The groups' colours, and the figures of the column under the pointer. */
function Legend({ chart, pointed, bucket }: LegendProps) {
  return (
    <Group gap="md" mih={24} className="usage-legend">
      <Text span fz="xs" c="dimmed" miw={110}>
        {pointed === undefined ? "The whole period" : bucketLabel(pointed.start, bucket)}
      </Text>
      {chart.series.map(({ id, name, paint }, at) => {
        const whole = chart.columns.reduce((sum, { parts }) => sum + (parts[at] ?? 0), 0);
        return (
          <Group key={id} gap={6} wrap="nowrap">
            <Swatch paint={paint} />
            <Text span fz="xs">
              {name} {grouped(pointed?.parts[at] ?? (pointed === undefined ? whole : 0))}
            </Text>
          </Group>
        );
      })}
    </Group>
  );
}
