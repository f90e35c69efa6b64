import { Anchor, Group, Tabs, Text } from "@mantine/core";
import { useEffect, useRef, type ReactNode } from "react";
import { Link, useLocation } from "wouter";

import { asApiError } from "@/api/errors";
import type { TenantDetail } from "@/api/types";
import { Empty } from "@/components/feedback/empty";
import { Page } from "@/components/layout/page";
import { Panel } from "@/components/layout/panel";
import { QueryState } from "@/components/feedback/query-state";
import { weight } from "@/format/numbers";
import { dateTime } from "@/format/time";
import { AdaptersTab } from "@/features/adapters/list/adapters-tab";
import { Events } from "@/features/audit/events";
import { KeysTab } from "@/features/keys/list/keys-tab";
import { LimitsTab } from "@/features/limits/limits-tab";
import { UsageReport } from "@/features/usage/usage-report";

import { StatusBadge } from "../status-badge";
import { useTenant } from "../use-tenants";
import { OverviewTab } from "./overview-tab";
import { SuspendTenant } from "./suspend-tenant";

const TABS: Record<string, { label: string; content: (tenant: TenantDetail) => ReactNode }> = {
  overview: { label: "Overview", content: (tenant) => <OverviewTab tenant={tenant} /> },
  adapters: { label: "Adapters", content: ({ slug }) => <AdaptersTab slug={slug} /> },
  keys: { label: "Keys", content: ({ slug }) => <KeysTab slug={slug} /> },
  limits: { label: "Limits", content: ({ slug, plan }) => <LimitsTab slug={slug} plan={plan} /> },
  usage: { label: "Usage", content: ({ slug }) => <UsageReport whose={slug} /> },
  audit: { label: "Audit", content: ({ slug }) => <Events whose={slug} /> },
};

export function TenantPage({ slug, tab }: { slug: string; tab: string | undefined }) {
  const query = useTenant(slug);
  const tenant = query.data;
  const isMissing = tenant === undefined && asApiError(query.error).status === 404;
  return (
    <Page
      title={tenant?.display_name ?? slug}
      testId="tenant"
      trail={[{ label: "Tenants", to: "/tenants" }]}
      subtitle={tenant && <Standing tenant={tenant} />}
      actions={tenant && <SuspendTenant tenant={tenant} />}
    >
      {isMissing ? (
        <NoSuchTenant slug={slug} />
      ) : (
        <QueryState query={query}>{(found) => <TenantTabs tenant={found} tab={tab} />}</QueryState>
      )}
    </Page>
  );
}

function Standing({ tenant }: { tenant: TenantDetail }) {
  return (
    <Group gap={8} component="span">
      <Text span ff="monospace" fz="sm">
        {tenant.slug}
      </Text>
      <StatusBadge status={tenant.status} />
      <span>weight {weight(tenant.weight)}</span>
      <span>since {dateTime(tenant.created_at)}</span>
    </Group>
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

function TenantTabs({ tenant, tab }: { tenant: TenantDetail; tab: string | undefined }) {
  const [, navigate] = useLocation();
  const tabs = useRef<HTMLDivElement>(null);
  const shown = tab !== undefined && tab in TABS ? tab : "overview";
  // On a narrow screen not all tabs fit; the one that is shown must.
  useEffect(() => {
    tabs.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [shown]);
  return (
    <Tabs
      value={shown}
      onChange={(next) => {
        const address = `/tenants/${encodeURIComponent(tenant.slug)}`;
        navigate(next === null || next === "overview" ? address : `${address}/${next}`);
      }}
      keepMounted={false}
    >
      <Tabs.List ref={tabs} mb="md" className="tabs">
        {Object.entries(TABS).map(([name, { label }]) => (
          <Tabs.Tab key={name} value={name}>
            {label}
          </Tabs.Tab>
        ))}
      </Tabs.List>
      {Object.entries(TABS).map(([name, { content }]) => (
        <Tabs.Panel key={name} value={name}>
          {name === shown && content(tenant)}
        </Tabs.Panel>
      ))}
    </Tabs>
  );
}
