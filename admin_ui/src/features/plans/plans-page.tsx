import { Anchor, Table } from "@mantine/core";
import { Link } from "wouter";

import type { Plan } from "@/api/types";
import { QueryState } from "@/components/feedback/query-state";
import { Page } from "@/components/layout/page";
import { Panel } from "@/components/layout/panel";
import { TableScroll } from "@/components/layout/table-scroll";
import { grouped } from "@/format/numbers";
import { amount } from "@/features/limits/amounts";
import { dimensionOf } from "@/features/limits/dimensions";

import { CreatePlan } from "./create-plan";
import { usePlans } from "./use-plans";

const SHOWN = ["rpm", "tpm", "monthly_tokens", "concurrent", "adapters", "adapter_bytes", "keys"];

/** Every plan with the figures that tell it from others; its page has them all. */
export function PlansPage() {
  const query = usePlans();
  return (
    <Page
      title="Plans"
      testId="plans"
      subtitle="What the tenants of a plan may do at most. A tenant's own limits only tighten it."
      actions={<CreatePlan />}
    >
      <QueryState query={query}>
        {({ data }) => (
          <Panel flush>
            <PlanTable plans={data} />
          </Panel>
        )}
      </QueryState>
    </Page>
  );
}

function PlanTable({ plans }: { plans: readonly Plan[] }) {
  return (
    <TableScroll label="Table of plans">
      <Table highlightOnHover fz="sm" miw={980} aria-label="Plans">
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Plan</Table.Th>
            <Table.Th ta="right">Tenants</Table.Th>
            {SHOWN.map((name) => (
              <Table.Th key={name} ta="right">
                {dimensionOf(name).label}
              </Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {plans.map(({ id, tenants, limits }) => (
            <Table.Tr key={id} data-testid={`plan-row-${id}`}>
              <Table.Td>
                <Anchor component={Link} to={`/plans/${encodeURIComponent(id)}`} fz="sm" fw={600}>
                  {id}
                </Anchor>
              </Table.Td>
              <Table.Td ta="right">{grouped(tenants)}</Table.Td>
              {SHOWN.map((name) => (
                <Table.Td key={name} ta="right" style={{ whiteSpace: "nowrap" }}>
                  {limits[name] === undefined ? "–" : amount(limits[name].value, dimensionOf(name).unit)}
                </Table.Td>
              ))}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </TableScroll>
  );
}
