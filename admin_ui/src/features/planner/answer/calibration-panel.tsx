import { SimpleGrid, Stack, Table, Text } from "@mantine/core";

import type { CapacityPlan } from "@/api/types";
import { ErrorBar } from "@/components/figures/error-bar";
import { FigureTable } from "@/components/figures/figure-table";
import { Panel } from "@/components/layout/panel";
import { humanBytes } from "@/format/bytes";
import { counted, percent } from "@/format/numbers";
import { significant } from "@/format/quantities";
import { latency } from "@/format/time";

type Calibration = NonNullable<CapacityPlan["calibration"]>;

const HELP = "Step times as the running engine has made them, by a model fitted to most of its steps and tried on the rest.";

/** What the calibrated plan stands on: how it does on what was measured, and how far its data reach. */
export function CalibrationPanel({ calibration }: { calibration: Calibration }) {
  const { steps, error_p50, error_p90, measured, ranges } = calibration;
  return (
    <Panel title="Calibration" help={HELP} note={counted(steps, "step")} testId="calibration">
      <Stack gap="md">
        <Text fz="sm">
          On steps that were kept out of the fit it is off by {percent(error_p50, 1)} in the middle, and by at most{" "}
          {percent(error_p90, 1)} in nine of ten.
        </Text>
        <SimpleGrid cols={{ base: 1, md: 2 }} spacing="md">
          {measured.length > 0 && <Compared measured={measured} />}
          <Ranges ranges={ranges} />
        </SimpleGrid>
      </Stack>
    </Panel>
  );
}

/** What the server calls it, what it is, and how its values are written. */
const NAMES: Readonly<Record<string, { words: string; written: (value: number) => string }>> = {
  ttft: { words: "First token (TTFT)", written: latency },
  itl: { words: "Next token (ITL)", written: latency },
  e2e: { words: "Whole request", written: latency },
  running: { words: "Running, at most", written: significant },
  batch: { words: "Requests that decode in a step", written: significant },
  batch_context: { words: "Their context together, tokens", written: significant },
  context: { words: "Context of one of them, tokens", written: significant },
  prefill_tokens: { words: "Prompt tokens in a step", written: significant },
  prefill_context: { words: "Tokens that each of them looks back at", written: significant },
  adapter_bytes: { words: "Adapters in a step", written: (value) => humanBytes(Math.round(value)) },
};

function inWords(name: string): string {
  return NAMES[name]?.words ?? name.replaceAll("_", " ");
}

function written(name: string, value: number): string {
  return (NAMES[name]?.written ?? significant)(value);
}

function Compared({ measured }: { measured: Calibration["measured"] }) {
  return (
    <FigureTable label="Predicted and measured" names={[30, 30]}>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>Figure</Table.Th>
          <Table.Th>Predicted</Table.Th>
          <Table.Th>Measured</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {measured.map((row) => (
          <Table.Tr key={row.name} data-testid={`compared-${row.name}`}>
            <Table.Td>
              {inWords(row.name)}
              <ErrorBar {...row} value={row.predicted} top={1.15 * Math.max(row.high, row.measured)} />
            </Table.Td>
            <Table.Td>
              {written(row.name, row.predicted)}
              <Text fz="xs" c="dimmed">
                {written(row.name, row.low)} – {written(row.name, row.high)}
              </Text>
            </Table.Td>
            <Table.Td>{written(row.name, row.measured)}</Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </FigureTable>
  );
}

function Ranges({ ranges }: { ranges: Calibration["ranges"] }) {
  return (
    <FigureTable label="What the engine has done" names={[46, 46]}>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>Seen so far</Table.Th>
          <Table.Th>From</Table.Th>
          <Table.Th>To</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {ranges.map(({ name, low, high }) => (
          <Table.Tr key={name}>
            <Table.Td>{inWords(name)}</Table.Td>
            <Table.Td>{written(name, low)}</Table.Td>
            <Table.Td>{written(name, high)}</Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </FigureTable>
  );
}
