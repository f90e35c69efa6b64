import { Anchor, SimpleGrid, Stack, Text } from "@mantine/core";
import { Link } from "wouter";

import type { EngineReport } from "@/api/types";
import { Empty } from "@/components/feedback/empty";
import { QueryState } from "@/components/feedback/query-state";
import { Page } from "@/components/layout/page";
import { Panel } from "@/components/layout/panel";
import { TimelinesPanel } from "@/features/performance/timelines-panel";
import { useEngine } from "@/features/performance/use-engine";

import { EffectsPanel } from "./effects-panel";
import { EngineBadge } from "./engine-badge";
import { KnobsPanel } from "./knobs-panel";
import { LatencyTable } from "./latency-table";
import { MemoryTable } from "./memory-table";
import { EnginePhases } from "./phases-panel";
import { PoolPanel } from "./pool-panel";
import { RooflinePanel } from "./roofline/roofline-panel";

const MEMORY_HELP = "What the memory that the engine may take is set aside for. It is set aside at its start and does not grow.";

/** What the engine was built from, and what it makes of it. */
export function EnginePage() {
  const query = useEngine();
  const report = query.data;
  return (
    <Page
      title="Engine"
      testId="engine"
      subtitle={report && <ModelLine report={report} />}
      actions={report && <EngineBadge state={report.state} />}
    >
      <QueryState query={query}>{(data) => <Report report={data} />}</QueryState>
    </Page>
  );
}

function ModelLine({ report: { model, device, dtype } }: { report: EngineReport }) {
  return (
    <span data-testid="model-line">
      <Text span fw={600} c="var(--mantine-color-text)" fz="sm">
        {model}
      </Text>
      {[device, dtype].filter((fact) => fact !== null).map((fact) => ` · ${fact}`).join("")}
    </span>
  );
}

function Report({ report }: { report: EngineReport }) {
  const { state, design, performance } = report;
  if (state !== "ready" || design === null) return <NoEngine state={state} />;
  return (
    <Stack gap="md">
      <SimpleGrid cols={{ base: 1, md: 2 }} spacing="md">
        <Panel title="Memory" help={MEMORY_HELP} testId="memory">
          <MemoryTable label="Memory of the engine" rows={design.memory} available={design.available_bytes} />
        </Panel>
        <PoolPanel design={design} performance={performance} />
      </SimpleGrid>
      {performance === null ? (
        <Panel testId="no-performance">
          <Empty title="Too little seen yet">
            <Text fz="sm" c="dimmed">
              How steps use the device needs two looks at the engine, some seconds apart.
            </Text>
          </Empty>
        </Panel>
      ) : (
        <>
          <EnginePhases performance={performance} />
          <SimpleGrid cols={{ base: 1, md: 2 }} spacing="md">
            <RooflinePanel performance={performance} />
            <Stack gap="md">
              <EffectsPanel performance={performance} />
              <TimelinesPanel performance={performance} />
            </Stack>
          </SimpleGrid>
          <LatencyTable performance={performance} />
        </>
      )}
      <KnobsPanel knobs={design.knobs} />
    </Stack>
  );
}

function NoEngine({ state }: { state: EngineReport["state"] }) {
  return (
    <Panel testId="no-engine">
      <Empty title={state === "unavailable" ? "The engine does not answer" : "The engine is starting"}>
        <Text fz="sm" c="dimmed" maw={520}>
          {state === "unavailable"
            ? "Its memory and its steps can't be read. This page keeps asking; the log of the engine process says why it does not answer."
            : "It loads the model and sets its memory aside. The memory table shows up here by itself."}
        </Text>
        <Anchor component={Link} to="/planner" fz="sm">
          Plan an engine
        </Anchor>
      </Empty>
    </Panel>
  );
}
