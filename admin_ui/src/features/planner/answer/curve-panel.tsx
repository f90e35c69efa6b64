import { SimpleGrid, Stack, Table } from "@mantine/core";

import type { CapacityPlan } from "@/api/types";
import { Curve } from "@/components/figures/curve";
import { Panel } from "@/components/layout/panel";
import { TableScroll } from "@/components/layout/table-scroll";
import { Term } from "@/components/term";
import { humanBytes } from "@/format/bytes";
import { grouped, rate } from "@/format/numbers";
import { significant } from "@/format/quantities";
import { latency } from "@/format/time";

const HELP = {
  panel: "Requests in a batch share one reading of the weights; each still reads its own context. Hollow points do not fit into the KV pool.",
  reads: "The weights divided by the batch, and the request's own keys and values.",
};

/** What a larger batch gives, and where it stops giving. */
export function CurvePanel({ plan }: { plan: CapacityPlan }) {
  const { curve, balanced_batch } = plan;
  if (curve.length === 0) return null;
  const bytes = (value: number) => humanBytes(Math.round(value));
  const mark = { x: balanced_batch, name: `KV = weights at ${significant(balanced_batch)}` };
  const drawn = (of: (point: CapacityPlan["curve"][number]) => number) =>
    curve.map((point) => ({ x: point.batch, y: of(point), isOut: !point.fits }));
  return (
    <Panel title="Batch size" help={HELP.panel} testId="curve" flush>
      <Stack gap="xs">
        <SimpleGrid cols={{ base: 1, md: 2 }} spacing="md" px="md" pt="xs">
          <Curve
            points={drawn(({ read_bytes_per_token }) => read_bytes_per_token)}
            label="Bytes read for each answer token, by batch"
            xName="Batch · bytes read for each answer token"
            writeX={grouped}
            writeY={bytes}
            mark={mark}
          />
          <Curve
            points={drawn(({ output_tokens_per_s }) => output_tokens_per_s)}
            label="Answer tokens a second, by batch"
            xName="Batch · answer tokens a second"
            writeX={grouped}
            writeY={rate}
          />
        </SimpleGrid>
        <CurveTable curve={curve} />
      </Stack>
    </Panel>
  );
}

function CurveTable({ curve }: { curve: CapacityPlan["curve"] }) {
  return (
    <TableScroll label="Table of batch sizes">
      <Table fz="sm" miw={520} verticalSpacing={4} aria-label="Batch sizes" className="figure-columns">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Batch</Table.Th>
            <Table.Th>
              <Term help={HELP.reads}>Read a token</Term>
            </Table.Th>
            <Table.Th>Next token (ITL)</Table.Th>
            <Table.Th>Tokens a second</Table.Th>
            <Table.Th>Fits</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {curve.map(({ batch, read_bytes_per_token, itl_s, output_tokens_per_s, fits }) => (
            <Table.Tr key={batch} data-batch={batch} c={fits ? undefined : "dimmed"}>
              <Table.Td>{grouped(batch)}</Table.Td>
              <Table.Td>{humanBytes(Math.round(read_bytes_per_token))}</Table.Td>
              <Table.Td>{latency(itl_s)}</Table.Td>
              <Table.Td>{rate(output_tokens_per_s)}</Table.Td>
              <Table.Td>{fits ? "yes" : "no"}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </TableScroll>
  );
}
