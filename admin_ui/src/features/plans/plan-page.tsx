import { Anchor, Button, Table, VisuallyHidden } from "@mantine/core";
import { useState } from "react";
import { Link } from "wouter";

import { api } from "@/api/client";
import { asApiError } from "@/api/errors";
import type { Plan } from "@/api/types";
import { Empty } from "@/components/feedback/empty";
import { QueryState } from "@/components/feedback/query-state";
import { Page } from "@/components/layout/page";
import { Panel } from "@/components/layout/panel";
import { TableScroll } from "@/components/layout/table-scroll";
import { Term } from "@/components/term";
import { counted } from "@/format/numbers";
import { inOrder } from "@/features/limits/dimensions";
import { EditLimit, type LimitToEdit } from "@/features/limits/edit-limit";
import { FiguresCell } from "@/features/limits/limits-table";
import type { LimitChange } from "@/features/limits/use-limits";

import { useRefreshPlans } from "./use-plans";

/** One plan: a figure for everything that can be limited. */
export function PlanPage({ id }: { id: string }) {
  const params = { path: { id } };
  const query = api.useQuery("get", "/admin/v1/plans/{id}", { params });
  const put = api.useMutation("put", "/admin/v1/plans/{id}");
  const refresh = useRefreshPlans();
  const isMissing = query.data === undefined && asApiError(query.error).status === 404;

  async function change(limits: LimitChange): Promise<void> {
    const set = Object.entries(limits).flatMap(([name, figures]) => (figures === null ? [] : [[name, figures] as const]));
    await put.mutateAsync({ params, body: { limits: Object.fromEntries(set) } });
    await Promise.all([query.refetch(), refresh()]);
  }

  return (
    <Page
      title={id}
      testId="plan"
      trail={[{ label: "Plans", to: "/plans" }]}
      subtitle={query.data && `${counted(query.data.tenants, "tenant")} with this plan`}
    >
      {isMissing ? (
        <Panel>
          <Empty title={`There is no plan “${id}”`}>
            <Anchor component={Link} to="/plans" fz="sm">
              All plans
            </Anchor>
          </Empty>
        </Panel>
      ) : (
        <QueryState query={query}>{(plan) => <PlanLimits plan={plan} onChange={change} />}</QueryState>
      )}
    </Page>
  );
}

function PlanLimits({ plan, onChange }: { plan: Plan; onChange: (change: LimitChange) => Promise<void> }) {
  const [edited, setEdited] = useState<LimitToEdit | null>(null);
  return (
    <Panel flush testId="plan-limits">
      <TableScroll label="Table of limits">
        <Table highlightOnHover fz="sm" miw={340} aria-label="Limits">
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Limit</Table.Th>
              <Table.Th ta="right">At most</Table.Th>
              <Table.Th w={90}>
                <VisuallyHidden>Change</VisuallyHidden>
              </Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {inOrder(Object.keys(plan.limits)).map((dimension) => {
              const figures = plan.limits[dimension.name];
              if (figures === undefined) return null;
              return (
                <Table.Tr key={dimension.name} data-testid={`plan-limit-${dimension.name}`}>
                  <Table.Td>
                    <Term help={dimension.help}>{dimension.label}</Term>
                  </Table.Td>
                  <Table.Td ta="right" fw={600}>
                    <FiguresCell figures={figures} unit={dimension.unit} hasBurst={dimension.hasBurst} />
                  </Table.Td>
                  <Table.Td ta="right">
                    <Button
                      size="compact-sm"
                      variant="default"
                      aria-label={`Edit ${dimension.label}`}
                      onClick={() => {
                        setEdited({ dimension, whose: "the plan's", own: figures, otherwise: figures, canRemove: false });
                      }}
                    >
                      Edit
                    </Button>
                  </Table.Td>
                </Table.Tr>
              );
            })}
          </Table.Tbody>
        </Table>
      </TableScroll>
      <EditLimit
        edited={edited}
        onClose={() => {
          setEdited(null);
        }}
        onChange={onChange}
      />
    </Panel>
  );
}
