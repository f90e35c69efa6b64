import { Group, Text } from "@mantine/core";

import { Swatch } from "@/components/figures/stacked-bar";
import { TenantLink } from "@/components/tenant-link";

type HolderProps = { paint: string } & ({ tenant: string } | { children: string });

/** Who a figure belongs to, with the colour it has in the bars: a tenant, or whatever else the words say. */
export function Holder({ paint, ...who }: HolderProps) {
  return (
    <Group gap={8} wrap="nowrap" miw={0}>
      <Swatch paint={paint} />
      <Text span truncate fz="sm" title={"tenant" in who ? who.tenant : undefined}>
        {"tenant" in who ? <TenantLink slug={who.tenant} /> : who.children}
      </Text>
    </Group>
  );
}
