import { SimpleGrid, Stack, Text } from "@mantine/core";

import { Figure } from "@/components/figures/figure";
import { StackedBar } from "@/components/figures/stacked-bar";
import { Panel } from "@/components/layout/panel";
import { grouped, percent } from "@/format/numbers";
import { useTenantLimits } from "@/features/limits/use-limits";
import { amount } from "@/features/limits/amounts";
import { totals } from "@/features/usage/series";
import { useMonth } from "@/features/usage/use-usage";

const HELP = {
  tokens: "Prompt and answer tokens of requests that ended since the month began (UTC).",
  requests: "Requests that ended, whichever way.",
};

/** The month so far, against the month's budget. */
export function MonthPanel({ slug }: { slug: string }) {
  const month = useMonth(slug);
  const budget = useTenantLimits(slug).query.data?.limits.monthly_tokens?.value;
  const used = month.data && totals(month.data);
  const tokens = used && used.prompt_tokens + used.completion_tokens;
  return (
    <Panel title="This month" testId="tenant-month">
      <Stack gap={8}>
        <SimpleGrid cols={2} spacing="md">
          <Figure
            term="Tokens"
            help={HELP.tokens}
            value={tokens === undefined ? "–" : grouped(tokens)}
            note={budget === undefined ? " " : `of ${amount(budget, "tokens")}`}
            testId="month-tokens"
          />
          <Figure
            term="Requests"
            help={HELP.requests}
            value={used === undefined ? "–" : grouped(used.requests)}
            note={used === undefined ? " " : `${grouped(used.errors)} failed`}
            testId="month-requests"
          />
        </SimpleGrid>
        <StackedBar
          parts={[{ key: "used", value: Math.min(tokens ?? 0, budget ?? 1), paint: "var(--lk-target)" }]}
          whole={Math.max(budget ?? 1, 1)}
          height={8}
        />
        <Text fz="xs" c="dimmed">
          {tokens === undefined || budget === undefined ? " " : `${percent(tokens, budget)} of the month's tokens`}
        </Text>
      </Stack>
    </Panel>
  );
}
