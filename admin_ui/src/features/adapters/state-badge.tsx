import { Badge, Loader, Tooltip } from "@mantine/core";

import type { Version } from "@/api/types";
import { useNow } from "@/format/use-now";

import { isBeingDeleted, LOOKS } from "./states";

export function StateBadge({ version }: { version: Version }) {
  const { color, label, meaning } = LOOKS[version.state];
  const shown = isBeingDeleted(version, useNow()) ? "being deleted" : label;
  return (
    <Tooltip label={meaning} multiline maw={300}>
      <Badge
        color={color}
        leftSection={version.state === "validating" ? <Loader size={10} color="blue" aria-hidden /> : undefined}
        data-testid={`version-state-${version.adapter}-${version.number}`}
        data-state={version.state}
      >
        {shown}
      </Badge>
    </Tooltip>
  );
}
