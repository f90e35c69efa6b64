import { Badge, Loader } from "@mantine/core";

import type { Version } from "@/api/types";

const LOOKS: Record<string, { color: string; label: string }> = {
  validating: { color: "blue", label: "validating" },
  ready: { color: "green", label: "ready" },
  rejected: { color: "red", label: "rejected" },
  failed_internal: { color: "orange", label: "failed" },
};

export function StateBadge({ version }: { version: Version }) {
  const { color, label } = LOOKS[version.state] ?? { color: "gray", label: version.state };
  return (
    <Badge
      color={color}
      leftSection={version.state === "validating" ? <Loader size={10} color="blue" aria-hidden /> : undefined}
      data-testid={`version-state-${version.adapter}-${version.number}`}
      data-state={version.state}
    >
      {label}
    </Badge>
  );
}
