import { Button, Table, Text } from "@mantine/core";

import { api } from "@/api/client";
import type { Adapter, Alias, AliasRevision } from "@/api/types";
import { QueryState } from "@/components/feedback/query-state";
import { TableScroll } from "@/components/layout/table-scroll";
import { dateTime } from "@/format/time";

import type { Confirmation } from "./confirm-change";
import { targetsInWords } from "./shares";

interface AliasHistoryProps {
  slug: string;
  adapter: Adapter;
  alias: Alias;
  onConfirm: (confirmation: Confirmation) => void;
}

/** Every revision of an alias, the newest first; each that can still be served can come back. */
export function AliasHistory({ slug, adapter, alias, onConfirm }: AliasHistoryProps) {
  const query = api.useQuery("get", "/admin/v1/tenants/{slug}/adapters/{name}/aliases/{alias}/history", {
    params: { path: { slug, name: adapter.name, alias: alias.alias } },
  });
  return (
    <QueryState query={query}>
      {({ data }) => (
        <TableScroll label={`Table of the history of ${alias.alias}`}>
          <Table fz="sm" miw={760} verticalSpacing={6} aria-label={`History of ${alias.alias}`}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th ta="right" w={80}>
                  Revision
                </Table.Th>
                <Table.Th>Pointed at</Table.Th>
                <Table.Th w={170}>By</Table.Th>
                <Table.Th w={160}>When</Table.Th>
                <Table.Th w={150}>Roll back</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {data.map((revision) => (
                <Table.Tr key={revision.revision} data-testid={`revision-${alias.alias}-${revision.revision}`}>
                  <Table.Td ta="right">{revision.revision}</Table.Td>
                  <Table.Td>
                    {revision.targets.length === 0 ? "removed" : targetsInWords(revision.targets)}
                    {revision.reason !== null && (
                      <Text fz="xs" c="dimmed" maw={320} style={{ overflowWrap: "anywhere" }}>
                        {revision.reason}
                      </Text>
                    )}
                  </Table.Td>
                  <Table.Td miw={150} style={{ overflowWrap: "anywhere" }}>
                    {revision.actor}
                  </Table.Td>
                  <Table.Td style={{ whiteSpace: "nowrap" }}>{dateTime(revision.at)}</Table.Td>
                  <Table.Td>
                    <GoBack adapter={adapter} alias={alias} revision={revision} onConfirm={onConfirm} />
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </TableScroll>
      )}
    </QueryState>
  );
}

/** Why an alias can't go back to a revision, in a few words; null when it can. */
export function obstacle(adapter: Adapter, alias: Alias, revision: AliasRevision): string | null {
  if (revision.revision === alias.revision) return "in force now";
  if (revision.targets.length === 0) return "nothing to go back to";
  const states = new Map(adapter.versions.map(({ number, state }) => [number, state]));
  const missing = revision.targets.find(({ version }) => states.get(version) !== "ready");
  return missing === undefined ? null : `version ${missing.version} isn't ready`;
}

type GoBackProps = Omit<AliasHistoryProps, "slug"> & { revision: AliasRevision };

function GoBack({ adapter, alias, revision, onConfirm }: GoBackProps) {
  const why = obstacle(adapter, alias, revision);
  if (why !== null) {
    return (
      <Text fz="xs" c="dimmed">
        {why}
      </Text>
    );
  }
  return (
    <Button
      size="compact-xs"
      variant="default"
      aria-label={`Roll back to this: revision ${revision.revision} of ${alias.alias}`}
      onClick={() => {
        onConfirm({
          title: `Roll ${alias.alias} back to revision ${revision.revision}`,
          verb: "Roll back",
          sentence: `${alias.alias} will point at ${targetsInWords(revision.targets)} again, with the stickiness and the guard of that revision.`,
          change: (reason) => ({ kind: "rollback", toRevision: revision.revision, ...(reason ? { reason } : {}) }),
        });
      }}
    >
      Roll back to this
    </Button>
  );
}
