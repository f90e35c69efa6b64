import { SimpleGrid, Stack } from "@mantine/core";

import type { TenantDetail } from "@/api/types";

import { MemoryPanel } from "./memory-panel";
import { MonthPanel } from "./month-panel";
import { SettingsPanel } from "./settings-panel";

/** What the tenant is, what it holds of the engine now, and what it used this month. */
export function OverviewTab({ tenant }: { tenant: TenantDetail }) {
  return (
    <Stack gap="md" data-testid="tenant-overview">
      <SimpleGrid cols={{ base: 1, md: 2 }} spacing="md">
        <MemoryPanel tenant={tenant} />
        <MonthPanel slug={tenant.slug} />
      </SimpleGrid>
      <SettingsPanel tenant={tenant} />
    </Stack>
  );
}
