import { Anchor, Group, Tabs, Text } from "@mantine/core";
import { Link, useLocation } from "wouter";

import { Empty } from "@/components/feedback/empty";
import { Page } from "@/components/layout/page";
import { Panel } from "@/components/layout/panel";
import { QueryState } from "@/components/feedback/query-state";
import { weight } from "@/format/numbers";
import { dateTime } from "@/format/time";
import { AdaptersTab } from "@/features/adapters/list/adapters-tab";
import { KeysTab } from "@/features/keys/keys-tab";

import { StatusBadge } from "./tenants-page";
import { useTenants } from "./use-tenants";

const TABS = ["adapters", "keys"] as const;

export function TenantPage({ slug, tab }: { slug: string; tab: string | undefined }) {
  const query = useTenants();
  const tenant = query.data?.data.find((each) => each.slug === slug);
  return (
    <Page
      title={tenant?.display_name ?? slug}
      testId="tenant"
      trail={[{ label: "Tenants", to: "/tenants" }]}
      subtitle={
        tenant && (
          <Group gap={8} component="span">
            <Text span ff="monospace" fz="sm">
              {tenant.slug}
            </Text>
            <StatusBadge status={tenant.status} />
            <span>weight {weight(tenant.weight)}</span>
            <span>since {dateTime(tenant.created_at)}</span>
          </Group>
        )
      }
    >
      <QueryState query={query}>
        {() => (tenant === undefined ? <NoSuchTenant slug={slug} /> : <TenantTabs slug={slug} tab={tab} />)}
      </QueryState>
    </Page>
  );
}

function NoSuchTenant({ slug }: { slug: string }) {
  return (
    <Panel>
      <Empty title={`There is no tenant “${slug}”`}>
        <Anchor component={Link} to="/tenants" fz="sm">
          All tenants
        </Anchor>
      </Empty>
    </Panel>
  );
}

function TenantTabs({ slug, tab }: { slug: string; tab: string | undefined }) {
  const [, navigate] = useLocation();
  const shown = TABS.find((each) => each === tab) ?? "adapters";
  return (
    <Tabs
      value={shown}
      onChange={(next) => {
        const address = `/tenants/${encodeURIComponent(slug)}`;
        navigate(next === "keys" ? `${address}/keys` : address);
      }}
      keepMounted={false}
    >
      <Tabs.List mb="md">
        <Tabs.Tab value="adapters">Adapters</Tabs.Tab>
        <Tabs.Tab value="keys">Keys</Tabs.Tab>
      </Tabs.List>
      <Tabs.Panel value="adapters">
        <AdaptersTab slug={slug} />
      </Tabs.Panel>
      <Tabs.Panel value="keys">
        <KeysTab slug={slug} />
      </Tabs.Panel>
    </Tabs>
  );
}
