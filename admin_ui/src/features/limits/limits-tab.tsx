import { Anchor, Stack, Text } from "@mantine/core";
import { Link } from "wouter";

import { QueryState } from "@/components/feedback/query-state";

import { LimitsTable } from "./limits-table";
import { useTenantLimits } from "./use-limits";

/** What the tenant as a whole may do. */
export function LimitsTab({ slug, plan }: { slug: string; plan: string }) {
  const { query, change } = useTenantLimits(slug);
  return (
    <Stack gap="md">
      <Text fz="sm" c="dimmed">
        The smallest limit holds: the tenant&apos;s own can only tighten what the plan{" "}
        <Anchor component={Link} to={`/plans/${encodeURIComponent(plan)}`} fz="sm" underline="always">
          {plan}
        </Anchor>{" "}
        allows, and a key&apos;s own only what the tenant may.
      </Text>
      <QueryState query={query}>
        {({ limits }) => <LimitsTable limits={limits} subject="tenant" onChange={change} />}
      </QueryState>
    </Stack>
  );
}
