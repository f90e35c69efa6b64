import { Badge, Stack, Text } from "@mantine/core";

import type { Engine } from "@/api/types";
import { Page } from "@/components/layout/page";
import { QueryState } from "@/components/feedback/query-state";
import { grouped } from "@/format/numbers";
import { duration } from "@/format/time";

import { LivePanels } from "./live-panels";
import { PlatformLine, PlatformTroubles } from "./platform-state";
import { useOverview } from "./use-overview";

const ENGINE_COLORS: Record<string, string> = { ready: "green", starting: "yellow", unavailable: "red" };

export function EngineBadge({ state }: { state: Engine["state"] }) {
  return (
    <Badge color={ENGINE_COLORS[state] ?? "gray"} size="lg" data-testid="engine-state" data-state={state}>
      Engine {state}
    </Badge>
  );
}

export function OverviewPage() {
  const query = useOverview();
  const engine = query.data?.latest.engine;
  return (
    <Page
      title="Overview"
      testId="overview"
      subtitle={engine && <ModelLine engine={engine} />}
      actions={engine && <EngineBadge state={engine.state} />}
    >
      <QueryState query={query}>
        {(live) => (
          <Stack gap="md">
            <PlatformTroubles overview={live.latest} />
            <LivePanels live={live} />
            <PlatformLine overview={live.latest} />
          </Stack>
        )}
      </QueryState>
    </Page>
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
