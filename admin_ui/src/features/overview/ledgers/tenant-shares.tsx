import { Stack, Table } from "@mantine/core";
import type { ReactNode } from "react";

import type { Ledger } from "@/api/types";
import { FigureTable } from "@/components/figures/figure-table";
import { StackedBar } from "@/components/figures/stacked-bar";
import { humanBytes } from "@/format/bytes";
import { counted, grouped, percent } from "@/format/numbers";

import { byRoster, OTHERS_PAINT, type Roster } from "../roster";
import { Holder } from "../holder";
import { heldByTenants } from "./ledger-states";

interface Share {
  key: string;
  name: ReactNode;
  spoken: string;
  paint: string;
  bytes: number;
}

/** The pool as a bar of its tenants and its free part, and the same in figures. */
export function TenantShares({ title, ledger, roster }: { title: string; ledger: Ledger; roster: Roster }) {
  const shares = sharesOf(ledger, roster);
  const spoken = shares.map(({ spoken, bytes }) => `${spoken} ${humanBytes(bytes)}`).join(", ");
  return (
    <Stack gap={8}>
      <StackedBar
        label={`${title} by tenant: ${spoken}`}
        parts={shares.filter(({ key }) => key !== "free").map(({ key, paint, bytes }) => ({ key, paint, value: bytes }))}
        whole={ledger.capacity}
      />
      <FigureTable label={`${title} by tenant`} names={[31, 46]}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Tenant</Table.Th>
            <Table.Th>Size</Table.Th>
            <Table.Th visibleFrom="xs" w="31%">
              Bytes
            </Table.Th>
            <Table.Th>Share</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {shares.map(({ key, name, bytes }) => (
            <Table.Tr key={key}>
              <Table.Td>{name}</Table.Td>
              <Figures bytes={bytes} of={ledger.capacity} holder={key} />
            </Table.Tr>
          ))}
        </Table.Tbody>
        <Table.Tfoot>
          <Table.Tr>
            <Table.Td>Whole pool</Table.Td>
            <Figures bytes={heldByTenants(ledger) + ledger.free} of={ledger.capacity} holder="sum" />
          </Table.Tr>
        </Table.Tfoot>
      </FigureTable>
    </Stack>
  );
}

function Figures({ bytes, of, holder }: { bytes: number; of: number; holder: string }) {
  return (
    <>
      <Table.Td data-holder={holder} data-bytes={bytes}>
        {humanBytes(bytes)}
      </Table.Td>
      <Table.Td visibleFrom="xs">{grouped(bytes)}</Table.Td>
      <Table.Td>{percent(bytes, of)}</Table.Td>
    </>
  );
}

function sharesOf(ledger: Ledger, roster: Roster): Share[] {
  const { rows, others } = byRoster(roster, ledger.by_tenant);
  const shares: Share[] = rows.map(({ tenant, paint, entry }) => ({
    key: `tenant:${tenant}`,
    name: <Holder tenant={tenant} paint={paint} />,
    spoken: tenant,
    paint,
    bytes: entry?.bytes ?? 0,
  }));
  if (roster.crowded) {
    const spoken = counted(others.length, "other tenant");
    const bytes = heldByTenants({ by_tenant: others });
    shares.push({ key: "others", name: <Holder paint={OTHERS_PAINT}>{spoken}</Holder>, spoken, paint: OTHERS_PAINT, bytes });
  }
  const free = { key: "free", spoken: "free", paint: "var(--lk-free)", bytes: ledger.free };
  return [...shares, { ...free, name: <Holder paint={free.paint}>Free</Holder> }];
}
