import { Group, Text } from "@mantine/core";

import type { CapacityPlan } from "@/api/types";
import { Panel } from "@/components/layout/panel";
import { Prose } from "@/components/prose";

/** The order in which an engine is sized, with this workload's numbers. */
export function SizingPanel({ steps }: { steps: CapacityPlan["steps"] }) {
  return (
    <Panel title="Sizing, step by step" testId="sizing">
      <ol className="sizing">
        {steps.map(({ title, text, value }) => (
          <li key={title}>
            <Group justify="space-between" gap="xs" align="baseline">
              <Text span fw={600} fz="sm">
                {title}
              </Text>
              <Text span fw={600} fz="sm">
                {value}
              </Text>
            </Group>
            <Text fz="sm" c="dimmed">
              <Prose>{text}</Prose>
            </Text>
          </li>
        ))}
      </ol>
    </Panel>
  );
}
