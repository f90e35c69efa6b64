import { SimpleGrid, Stack, Text } from "@mantine/core";

import type { CapacityPlan } from "@/api/types";
import { Figure } from "@/components/figures/figure";
import { StackedBar } from "@/components/figures/stacked-bar";
import { Panel } from "@/components/layout/panel";
import { humanBytes } from "@/format/bytes";
import { grouped } from "@/format/numbers";

const HELP = {
  panel: "Adapters are kept in one memory, the contexts of their requests in another: keys and values of one adapter are of no use to another.",
  each: "One adapter's matrices as the engine keeps them.",
  all: "All adapters at once; those that are not asked for may lie in host memory.",
  kv: "One context of this workload for every adapter, which no other can share.",
  resident: "Adapters that the arena holds at once. More than that take turns, and their requests wait for loads.",
};

/** Two ledgers, and which of them is full first. */
export function LoraPanel({ lora }: { lora: NonNullable<CapacityPlan["lora"]> }) {
  const { adapter_bytes, all_bytes, private_kv_bytes, bound_by, resident } = lora;
  const whole = Math.max(all_bytes, private_kv_bytes, 1);
  return (
    <Panel title="Adapters" help={HELP.panel} testId="lora">
      <Stack gap="md">
        <SimpleGrid cols={{ base: 2, sm: 4 }} spacing="md">
          <Figure term="An adapter" help={HELP.each} value={humanBytes(adapter_bytes)} note={`${grouped(adapter_bytes)} bytes`} testId="lora-each" />
          <Figure term="All adapters" help={HELP.all} value={humanBytes(all_bytes)} note="weights" testId="lora-all" />
          <Figure term="Their contexts" help={HELP.kv} value={humanBytes(private_kv_bytes)} note="keys and values" testId="lora-kv" />
          <Figure term="In the arena" help={HELP.resident} value={grouped(resident)} note="adapters at once" testId="lora-resident" />
        </SimpleGrid>
        <Stack gap={4} aria-hidden>
          <Labelled name="adapters" value={all_bytes} whole={whole} paint="var(--lk-tenant-4)" />
          <Labelled name="contexts" value={private_kv_bytes} whole={whole} paint="var(--lk-tenant-1)" />
        </Stack>
        <Text fz="sm" data-testid="lora-verdict">
          {bound_by === "kv"
            ? "Memory for contexts runs out first: KV bounds how many can run at once, not the number of adapters."
            : "Memory for adapters runs out first: they take turns before KV is full."}
        </Text>
      </Stack>
    </Panel>
  );
}

function Labelled({ name, value, whole, paint }: { name: string; value: number; whole: number; paint: string }) {
  return (
    <div style={{ display: "grid", gridTemplateColumns: "70px 1fr", alignItems: "center", gap: 8 }}>
      <Text fz="xs" c="dimmed">
        {name}
      </Text>
      <StackedBar parts={[{ key: name, value, paint }]} whole={whole} height={10} />
    </div>
  );
}
