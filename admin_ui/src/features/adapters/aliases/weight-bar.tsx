import { Group, Text } from "@mantine/core";

import type { AliasTarget } from "@/api/types";
import { StackedBar, Swatch } from "@/components/figures/stacked-bar";

import { mainTarget } from "./shares";

/** The target with the largest share is solid, those on trial are hatched, each another way. */
function painted(targets: readonly AliasTarget[]): (AliasTarget & { paint: string })[] {
  const main = mainTarget(targets);
  let trial = 0;
  return targets.map((target) => {
    if (target !== main) trial += 1;
    return { ...target, paint: target === main ? "var(--lk-target)" : `var(--lk-trial-${trial})` };
  });
}

/** Where an alias sends its requests: a bar, and the figures below it. */
export function WeightBar({ targets, height = 14 }: { targets: readonly AliasTarget[]; height?: number }) {
  const parts = painted(targets);
  return (
    <div>
      <StackedBar
        parts={parts.map(({ version, weight, paint }) => ({ key: String(version), value: weight, paint }))}
        whole={100}
        height={height}
      />
      <Group gap="md" mt={6} fz="sm">
        {parts.map(({ version, weight, paint }) => (
          <Group key={version} gap={6} wrap="nowrap" data-target={version} data-weight={weight}>
            <Swatch paint={paint} />
            <span>
              version{" "}
              <Text span fw={600} fz="sm">
                {version}
              </Text>
            </span>
            <Text span c="dimmed" fz="sm">
              {weight} %
            </Text>
          </Group>
        ))}
      </Group>
    </div>
  );
}
