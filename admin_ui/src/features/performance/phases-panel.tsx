import { Group, Stack, Table } from "@mantine/core";

import type { Performance, Phase } from "@/api/types";
import { FigureTable } from "@/components/figures/figure-table";
import { Swatch } from "@/components/figures/stacked-bar";
import { Panel } from "@/components/layout/panel";
import { Term } from "@/components/term";
import { percent } from "@/format/numbers";
import { span } from "@/format/time";

import { IDLE, phaseOf, PHASES, UTILISATION, type Kind } from "./kinds";
import { idleShare, StepMix } from "./step-mix";

const HELP =
  "Reading prompts and giving next tokens strain the device in different ways, so that each kind of step has its own " +
  "figures; an average of them would say nothing.";

/** What the steps were of late, and how well each kind used the device. */
export function PhasesPanel({ performance }: { performance: Performance }) {
  return (
    <Panel title="Steps" help={HELP} note={`last ${span(performance.window_s)}`} testId="phases">
      <Stack gap="sm">
        <StepMix performance={performance} />
        <FigureTable label="Steps by kind" names={[37, 34]}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Kind</Table.Th>
              <Table.Th>Time</Table.Th>
              <Table.Th>
                <Term help={UTILISATION.mfu}>MFU</Term>
              </Table.Th>
              <Table.Th>
                <Term help={UTILISATION.mbu}>MBU</Term>
              </Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {PHASES.map((kind) => (
              <Row key={kind.key} kind={kind} phase={phaseOf(performance, kind.key)} />
            ))}
            <Table.Tr data-phase="idle">
              <Table.Td>
                <KindName kind={IDLE} />
              </Table.Td>
              <Table.Td>{percent(idleShare(performance), 1)}</Table.Td>
              <Table.Td />
              <Table.Td />
            </Table.Tr>
          </Table.Tbody>
        </FigureTable>
      </Stack>
    </Panel>
  );
}

function Row({ kind, phase }: { kind: Kind; phase: Phase | undefined }) {
  const ran = phase !== undefined && phase.steps > 0;
  const computes = ran && kind.key !== "copy";
  return (
    <Table.Tr data-phase={kind.key} data-idle={!ran || undefined}>
      <Table.Td>
        <KindName kind={kind} />
      </Table.Td>
      <Table.Td>{ran ? percent(phase.share, 1) : "–"}</Table.Td>
      <Table.Td>{computes ? percent(phase.mfu, 1) : "–"}</Table.Td>
      <Table.Td>{computes ? percent(phase.mbu, 1) : "–"}</Table.Td>
    </Table.Tr>
  );
}

export function KindName({ kind: { label, meaning, paint } }: { kind: Kind }) {
  return (
    <Group gap={8} wrap="nowrap">
      <Swatch paint={paint} />
      <Term help={meaning}>{label}</Term>
    </Group>
  );
}
