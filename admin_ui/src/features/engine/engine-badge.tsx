import { Badge } from "@mantine/core";

import type { Engine } from "@/api/types";

const ENGINE_COLORS: Record<string, string> = { ready: "green", starting: "yellow", unavailable: "red" };

export function EngineBadge({ state }: { state: Engine["state"] }) {
  return (
    <Badge color={ENGINE_COLORS[state] ?? "gray"} size="lg" data-testid="engine-state" data-state={state}>
      Engine {state}
    </Badge>
  );
}
