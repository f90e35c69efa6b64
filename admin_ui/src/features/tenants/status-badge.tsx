import { Badge } from "@mantine/core";

const COLORS: Record<string, string> = { active: "green", suspended: "orange" };

export function StatusBadge({ status }: { status: string }) {
  return (
    <Badge color={COLORS[status] ?? "gray"} data-testid="tenant-status" data-status={status}>
      {status}
    </Badge>
  );
}
