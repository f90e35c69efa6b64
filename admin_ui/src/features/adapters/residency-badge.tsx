import { Badge, Text, Tooltip } from "@mantine/core";

import { rate } from "@/format/numbers";
import { residencyOf } from "@/features/overview/adapters/states";

import type { Residence } from "./residency";

export function ResidencyBadge({ at }: { at: Residence | null }) {
  if (at === null) {
    return (
      <Text span c="dimmed" aria-label="not known">
        –
      </Text>
    );
  }
  return (
    <Tooltip label={residencyOf(at.key)?.meaning} multiline maw={280}>
      <Badge color={at.color} data-residency={at.key}>
        {at.label}
      </Badge>
    </Tooltip>
  );
}

/** Requests a minute; nothing where nothing is known. */
export function Heat({ at }: { at: Residence | null }) {
  return <>{at === null ? "–" : rate(at.heat)}</>;
}
