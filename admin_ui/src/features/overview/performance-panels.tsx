import { SimpleGrid, Stack, Text } from "@mantine/core";

import type { EngineReport } from "@/api/types";
import { Empty } from "@/components/feedback/empty";
import { Panel } from "@/components/layout/panel";
import { LatencyPanel } from "@/features/performance/latency-panel";
import { PhasesPanel } from "@/features/performance/phases-panel";
import { TimelinesPanel } from "@/features/performance/timelines-panel";

/** How fast the engine has been of late, and what its steps made of the device. */
export function PerformancePanels({ report: { performance } }: { report: EngineReport }) {
  if (performance === null) {
    return (
      <Panel testId="no-performance">
        <Empty title="Too little seen yet">
          <Text fz="sm" c="dimmed">
            Waiting times and utilisation need two looks at the engine, some seconds apart.
          </Text>
        </Empty>
      </Panel>
    );
  }
  return (
    <Stack gap="md">
      <SimpleGrid cols={{ base: 1, md: 2 }} spacing="md">
        <LatencyPanel performance={performance} />
        <PhasesPanel performance={performance} />
      </SimpleGrid>
      <TimelinesPanel performance={performance} />
    </Stack>
  );
}
