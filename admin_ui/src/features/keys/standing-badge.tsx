import { Badge, Text } from "@mantine/core";

import type { Standing } from "./standing";

export function StandingBadge({ at }: { at: Standing }) {
  return (
    <>
      <Badge color={at.color} data-testid="key-standing" data-standing={at.word}>
        {at.word}
      </Badge>
      {at.note !== null && (
        <Text fz="xs" c="dimmed" lineClamp={2} title={at.note}>
          {at.note}
        </Text>
      )}
    </>
  );
}
