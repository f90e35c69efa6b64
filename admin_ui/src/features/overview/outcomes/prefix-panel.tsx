import { Group, Stack, Table, Text } from "@mantine/core";

import type { PrefixCache } from "@/api/types";
import { FigureTable } from "@/components/figures/figure-table";
import { Panel } from "@/components/layout/panel";
import { StackedBar } from "@/components/figures/stacked-bar";
import { Term } from "@/components/term";
import { counted, grouped, percent } from "@/format/numbers";

import { byRoster, type Roster } from "../roster";
import { Holder } from "../holder";
import { inWords, MISSES, total, unnamed } from "./reasons";

const HELP = {
  panel:
    "Prompts that begin alike are computed once: their KV blocks are kept for the same tenant and the same adapter " +
    "version, never for another.",
  misses: "Why the first block of a prompt that was not in the cache was not there; one reason a prompt.",
};

/** How much of the prompts was there already, for whom, and why the rest was not. */
export function PrefixPanel({ prefix, roster }: { prefix: PrefixCache; roster: Roster }) {
  return (
    <Panel title="Prefix cache" help={HELP.panel} note="since the engine's start" testId="prefix">
      <Stack gap="md">
        <HitRate prefix={prefix} />
        <Misses misses={prefix.misses} />
        <TenantHits prefix={prefix} roster={roster} />
        <Text fz="xs" c="dimmed">
          Found again after a preemption: {counted(prefix.recomputed_hit_tokens, "token")}, not part of the rate.
        </Text>
      </Stack>
    </Panel>
  );
}

function HitRate({ prefix }: { prefix: PrefixCache }) {
  return (
    <div>
      <Group gap="lg" wrap="nowrap">
        <Text fz={30} fw={650} lh={1.2} miw={112} data-testid="hit-rate">
          {percent(prefix.hit_tokens, prefix.queried_tokens)}
        </Text>
        <div style={{ flex: 1 }}>
          <StackedBar
            parts={[{ key: "hit", value: prefix.hit_tokens, paint: "var(--lk-used)" }]}
            whole={Math.max(1, prefix.queried_tokens)}
            height={8}
          />
        </div>
      </Group>
      <Text fz="sm" c="dimmed">
        {grouped(prefix.hit_tokens)} of {grouped(prefix.queried_tokens)} prompt tokens found
      </Text>
    </div>
  );
}

function Misses({ misses }: { misses: PrefixCache["misses"] }) {
  const lines = [...inWords(misses, MISSES), ...unnamed(misses, MISSES)];
  const all = total(lines);
  return (
    <FigureTable label="Why prompts were not found" names={[64, 52]}>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>
            <Term help={HELP.misses}>Why not more</Term>
          </Table.Th>
          <Table.Th>Prompts</Table.Th>
          <Table.Th w={64}>Share</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {lines.map(({ code, words, n }) => (
          <Table.Tr key={code} data-miss={code} data-idle={n === 0 || undefined}>
            <Table.Td>{words}</Table.Td>
            <Table.Td>{grouped(n)}</Table.Td>
            <Table.Td>{percent(n, all)}</Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </FigureTable>
  );
}

function TenantHits({ prefix, roster }: { prefix: PrefixCache; roster: Roster }) {
  const { rows } = byRoster(roster, prefix.by_tenant);
  if (rows.length === 0) return null;
  return (
    <FigureTable label="Found prompt tokens by tenant" names={[50, 46]}>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>Tenant</Table.Th>
          <Table.Th>Prompt tokens</Table.Th>
          <Table.Th>Found</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {rows.map(({ tenant, paint, entry }) => (
          <Table.Tr key={tenant}>
            <Table.Td>
              <Holder tenant={tenant} paint={paint} />
            </Table.Td>
            <Table.Td>{grouped(entry?.queried_tokens ?? 0)}</Table.Td>
            <Table.Td>{percent(entry?.hit_tokens ?? 0, entry?.queried_tokens ?? 0)}</Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </FigureTable>
  );
}
