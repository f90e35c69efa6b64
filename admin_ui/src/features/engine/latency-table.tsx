import { Table } from "@mantine/core";

import type { Performance } from "@/api/types";
import { Panel } from "@/components/layout/panel";
import { TableScroll } from "@/components/layout/table-scroll";
import { Term } from "@/components/term";
import { grouped } from "@/format/numbers";
import { latency, span } from "@/format/time";
import { latencyOf, MEASURES, WHOSE, type Measure } from "@/features/performance/kinds";

const HELP =
  "Half of the measured times are at most p50, nine of ten at most p90, 99 of 100 at most p99. A mean hides the slow ones.";

/** Every measured time, of all requests and by what they ran on. */
export function LatencyTable({ performance }: { performance: Performance }) {
  return (
    <Panel title="Measured times" help={HELP} note={`last ${span(performance.window_s)}`} testId="latency" flush>
      <TableScroll label="Table of measured times">
        <Table fz="sm" miw={620} verticalSpacing={5} aria-label="Measured times" className="figure-columns">
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Time</Table.Th>
              <Table.Th ta="left">Requests on</Table.Th>
              <Table.Th>Count</Table.Th>
              <Table.Th>Mean</Table.Th>
              <Table.Th>p50</Table.Th>
              <Table.Th>p90</Table.Th>
              <Table.Th>p99</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {MEASURES.map((measure) => (
              <Rows key={measure.key} measure={measure} performance={performance} />
            ))}
          </Table.Tbody>
        </Table>
      </TableScroll>
    </Panel>
  );
}

/** The measure's name stands once; what nothing ran on has no row. */
function Rows({ measure, performance }: { measure: Measure; performance: Performance }) {
  const rows = WHOSE.map((whose) => ({ ...whose, figures: latencyOf(performance, measure.key, whose.key) }));
  const shown = rows.filter(({ key, figures }) => key === "all" || figures !== undefined);
  return (
    <>
      {shown.map(({ key, label, figures }) => (
        <Table.Tr key={key} data-latency={`${measure.key}-${key}`}>
          <Table.Td>{key === "all" && <Term help={measure.meaning}>{measure.label}</Term>}</Table.Td>
          <Table.Td ta="left">{label}</Table.Td>
          <Table.Td>{grouped(figures?.count ?? 0)}</Table.Td>
          {[figures?.mean, figures?.p50, figures?.p90, figures?.p99].map((value, at) => (
            <Table.Td key={at}>{value === undefined ? "–" : latency(value)}</Table.Td>
          ))}
        </Table.Tr>
      ))}
    </>
  );
}
