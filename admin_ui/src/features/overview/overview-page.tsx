import { Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";

import type { Engine } from "@/api/types";
import { FailureNotice, QueryState } from "@/components/feedback/query-state";
import { Page } from "@/components/layout/page";
import { FindingsBanner } from "@/features/doctor/findings-banner";
import { useFindings } from "@/features/doctor/use-findings";
import { EngineBadge } from "@/features/engine/engine-badge";
import { useEngine } from "@/features/performance/use-engine";
import { grouped } from "@/format/numbers";
import { duration } from "@/format/time";

import { LivePanels } from "./live-panels";
import { PerformancePanels } from "./performance-panels";
import { PlatformLine, PlatformTroubles } from "./platform-state";
import { useOverview } from "./use-overview";

export function OverviewPage() {
  const query = useOverview();
  const doctor = useFindings();
  const report = useEngine();
  // All three make the page: none of them moves what the others have drawn.
  const isComplete = !doctor.isPending && !report.isPending;
  const engine = query.data?.latest.engine;
  return (
    <Page
      title="Overview"
      testId="overview"
      subtitle={engine && <ModelLine engine={engine} />}
      actions={engine && <EngineBadge state={engine.state} />}
    >
      <QueryState query={isComplete ? query : { data: undefined, error: query.error, refetch: query.refetch }}>
        {(live) => (
          <Stack gap="md">
            <PlatformTroubles overview={live.latest} />
            <Part query={doctor} isAlone={query.error === null}>
              {(findings) => <FindingsBanner report={findings} />}
            </Part>
            <LivePanels
              live={live}
              performance={
                <Part query={report} isAlone={query.error === null}>
                  {(data) => <PerformancePanels report={data} />}
                </Part>
              }
            />
            <PlatformLine overview={live.latest} />
          </Stack>
        )}
      </QueryState>
    </Page>
  );
}

interface PartProps<Data> {
  query: { data: Data | undefined; error: unknown; refetch: () => unknown };
  /** Whether nothing else has failed: one notice is enough when the server cannot be reached. */
  isAlone: boolean;
  children: (data: Data) => ReactNode;
}

/** A part of the page with a query of its own. */
function Part<Data>({ query, isAlone, children }: PartProps<Data>) {
  const { data, error, refetch } = query;
  return (
    <>
      {error !== null && isAlone && <FailureNotice error={error} onRetry={() => void refetch()} />}
      {data !== undefined && children(data)}
    </>
  );
}

function ModelLine({ engine }: { engine: Engine }) {
  const facts = [
    engine.device,
    engine.dtype,
    engine.max_model_len ? `${grouped(engine.max_model_len)} tokens of context` : null,
    engine.state === "ready" ? `up ${duration(engine.uptime_s)}` : null,
  ].filter((fact) => fact !== null && fact !== undefined);
  return (
    <span data-testid="model-line">
      <Text span fw={600} c="var(--mantine-color-text)" fz="sm">
        {engine.model}
      </Text>
      {facts.map((fact) => ` · ${fact}`).join("")}
    </span>
  );
}
