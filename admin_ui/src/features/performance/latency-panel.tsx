import { Table } from "@mantine/core";

import type { Performance } from "@/api/types";
import { FigureTable } from "@/components/figures/figure-table";
import { Panel } from "@/components/layout/panel";
import { Term } from "@/components/term";
import { latency, span } from "@/format/time";

import { latencyOf, measureOf, WHOSE } from "./kinds";

const HELP =
  "Half of the requests waited at most p50, nine of ten at most p90, 99 of 100 at most p99. A mean hides the slow ones.";

/** The first token with what it is made of, then the next ones; each also by what the requests ran on. */
const LINES = [
  { measure: "ttft", whose: "all", part: false },
  { measure: "queue", whose: "all", part: true },
  { measure: "adapter_wait", whose: "all", part: true },
  { measure: "prefill", whose: "all", part: true },
  { measure: "ttft", whose: "base", part: true },
  { measure: "ttft", whose: "adapter", part: true },
  { measure: "itl", whose: "all", part: false },
  { measure: "itl", whose: "base", part: true },
  { measure: "itl", whose: "adapter", part: true },
] as const;

/** How long readers waited for a first token and for each next one. */
export function LatencyPanel({ performance }: { performance: Performance }) {
  return (
    <Panel title="Waiting times" help={HELP} note={`last ${span(performance.window_s)}`} testId="latency">
      <FigureTable label="Waiting times" names={[43, 37]}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Until</Table.Th>
            <Table.Th>p50</Table.Th>
            <Table.Th>p90</Table.Th>
            <Table.Th>p99</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {LINES.map((line) => (
            <Row key={`${line.measure}-${line.whose}`} {...line} performance={performance} />
          ))}
        </Table.Tbody>
      </FigureTable>
    </Panel>
  );
}

type RowProps = (typeof LINES)[number] & { performance: Performance };

function Row({ measure, whose, part, performance }: RowProps) {
  const figures = latencyOf(performance, measure, whose);
  const { label, meaning } = measureOf(measure);
  const cells = figures ? [figures.p50, figures.p90, figures.p99].map(latency) : ["–", "–", "–"];
  return (
    <Table.Tr data-latency={`${measure}-${whose}`} data-idle={figures === undefined || undefined}>
      <Table.Td fw={part ? undefined : 600} style={part ? { paddingLeft: 16 } : undefined}>
        {whose === "all" ? <Term help={meaning}>{label}</Term> : WHOSE.find(({ key }) => key === whose)?.label}
      </Table.Td>
      {cells.map((cell, at) => (
        <Table.Td key={at}>{cell}</Table.Td>
      ))}
    </Table.Tr>
  );
}
