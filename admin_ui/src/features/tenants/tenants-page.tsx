import { Table, Text } from "@mantine/core";

import type { Tenant } from "@/api/types";
import { Empty } from "@/components/feedback/empty";
import { Page } from "@/components/layout/page";
import { Panel } from "@/components/layout/panel";
import { QueryState } from "@/components/feedback/query-state";
import { TableScroll } from "@/components/layout/table-scroll";
import { TenantLink } from "@/components/tenant-link";
import { Term } from "@/components/term";
import { counted, grouped, weight } from "@/format/numbers";
import { dateTime } from "@/format/time";
import { totalsByTenant } from "@/features/usage/series";
import { useMonth } from "@/features/usage/use-usage";

import { CreateTenant } from "./create-tenant";
import { StatusBadge } from "./status-badge";
import { useTenants } from "./use-tenants";

export function TenantsPage() {
  const query = useTenants();
  return (
    <Page
      title="Tenants"
      testId="tenants"
      subtitle={query.data && counted(query.data.data.length, "tenant")}
      actions={<CreateTenant />}
    >
      <QueryState query={query}>
        {({ data }) => (
          <Panel flush>{data.length === 0 ? <NoTenants /> : <TenantTable tenants={data} />}</Panel>
        )}
      </QueryState>
    </Page>
  );
}

function NoTenants() {
  return (
    <Empty title="No tenants yet">
      <Text fz="sm" c="dimmed" maw={420}>
        A tenant has its own keys and its own adapters; nobody else sees them. Create one, give it a key, then push an
        adapter with that key.
      </Text>
    </Empty>
  );
}

function TenantTable({ tenants }: { tenants: readonly Tenant[] }) {
  const month = useMonth(null).data;
  const used = month && totalsByTenant(month);
  return (
    <TableScroll label="Table of tenants">
      <Table highlightOnHover fz="sm" miw={860} aria-label="Tenants">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Tenant</Table.Th>
            <Table.Th>Name</Table.Th>
            <Table.Th>Status</Table.Th>
            <Table.Th>Plan</Table.Th>
            <Table.Th ta="right">
              <Term help="Share of the engine under load, in proportion to the other tenants' weights.">Weight</Term>
            </Table.Th>
            <Table.Th ta="right">Adapters</Table.Th>
            <Table.Th ta="right">Keys</Table.Th>
            <Table.Th ta="right" w={170}>
              <Term help="Prompt and answer tokens since the month began (UTC).">Tokens this month</Term>
            </Table.Th>
            <Table.Th>Created</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {tenants.map((tenant) => (
            <Table.Tr key={tenant.id} data-testid={`tenant-row-${tenant.slug}`}>
              <Table.Td>
                <TenantLink slug={tenant.slug} />
              </Table.Td>
              <Table.Td>{tenant.display_name}</Table.Td>
              <Table.Td>
                <StatusBadge status={tenant.status} />
              </Table.Td>
              <Table.Td>{tenant.plan}</Table.Td>
              <Table.Td ta="right" data-weight={tenant.weight}>
                {weight(tenant.weight)}
              </Table.Td>
              <Table.Td ta="right">{grouped(tenant.adapters)}</Table.Td>
              <Table.Td ta="right">{grouped(tenant.keys)}</Table.Td>
              <Table.Td ta="right">{used === undefined ? "–" : grouped(used.get(tenant.slug) ?? 0)}</Table.Td>
              <Table.Td style={{ whiteSpace: "nowrap" }}>{dateTime(tenant.created_at)}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </TableScroll>
  );
}
