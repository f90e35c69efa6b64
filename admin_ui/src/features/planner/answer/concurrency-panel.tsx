import { Table, VisuallyHidden } from "@mantine/core";

import type { CapacityPlan } from "@/api/types";
import { Panel } from "@/components/layout/panel";
import { TableScroll } from "@/components/layout/table-scroll";
import { humanBytes } from "@/format/bytes";
import { counted, grouped } from "@/format/numbers";

const HELP = "KV of so many requests of that context, in whole blocks. Hatched: more than the KV pool has.";

/** Context by concurrency: what it takes, and whether it fits. */
export function ConcurrencyPanel({ plan }: { plan: CapacityPlan }) {
  const { contexts, concurrencies, cells } = plan.concurrency_table;
  return (
    <Panel
      title="Context by concurrency"
      help={HELP}
      note={`a pool of ${counted(plan.pool_tokens, "token")}`}
      testId="concurrency"
      flush
    >
      <TableScroll label="Table of context by concurrency">
        <Table fz="sm" verticalSpacing={5} miw={90 + 88 * concurrencies.length} aria-label="Context by concurrency" className="concurrency">
          <Table.Thead>
            <Table.Tr>
              <Table.Th scope="col">Tokens</Table.Th>
              {concurrencies.map((concurrency) => (
                <Table.Th key={concurrency} scope="col">
                  {grouped(concurrency)}
                  <VisuallyHidden> at once</VisuallyHidden>
                </Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {contexts.map((context, row) => (
              <Table.Tr key={context}>
                <Table.Th scope="row">{grouped(context)}</Table.Th>
                {cells[row]?.map(({ bytes, fits }, column) => (
                  <Table.Td key={concurrencies[column]} data-fits={fits} title={fits ? "fits" : "does not fit"}>
                    {humanBytes(bytes)}
                    <VisuallyHidden>{fits ? ", fits" : ", does not fit"}</VisuallyHidden>
                  </Table.Td>
                ))}
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </TableScroll>
    </Panel>
  );
}
