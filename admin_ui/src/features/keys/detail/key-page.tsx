import { Anchor, Group, Stack, Table, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { Link } from "wouter";

import type { ApiKey } from "@/api/types";
import { Empty } from "@/components/feedback/empty";
import { QueryState } from "@/components/feedback/query-state";
import { Page } from "@/components/layout/page";
import { Panel } from "@/components/layout/panel";
import { TableScroll } from "@/components/layout/table-scroll";
import { dateTime } from "@/format/time";
import { useNow } from "@/format/use-now";
import { LimitsTable } from "@/features/limits/limits-table";
import { useKeyLimits } from "@/features/limits/use-limits";

import { EditKey } from "../form/edit-key";
import { inOrder } from "../scopes";
import { lineage, maskedKey, standing } from "../standing";
import { StandingBadge } from "../standing-badge";
import { RevokeKey } from "../steps/revoke-key";
import { RotateKey } from "../steps/rotate-key";
import { useKeys } from "../use-keys";

/** One key: what it may do, where it comes from, and limits of its own. */
export function KeyPage({ slug, id }: { slug: string; id: string }) {
  const query = useKeys(slug);
  const key = query.data?.data.find((each) => each.id === id);
  const address = `/tenants/${encodeURIComponent(slug)}`;
  return (
    <Page
      title={key?.name ?? "Key"}
      testId="key"
      trail={[
        { label: "Tenants", to: "/tenants" },
        { label: slug, to: address },
        { label: "Keys", to: `${address}/keys` },
      ]}
      subtitle={key && <Text ff="monospace">{maskedKey(key)}</Text>}
      actions={key && <Actions slug={slug} apiKey={key} />}
    >
      <QueryState query={query}>
        {({ data }) =>
          key === undefined ? (
            <Panel>
              <Empty title="There is no such key">
                <Anchor component={Link} to={`${address}/keys`} fz="sm">
                  All keys of {slug}
                </Anchor>
              </Empty>
            </Panel>
          ) : (
            <Stack gap="md">
              <Facts apiKey={key} />
              <Lineage slug={slug} keys={lineage(key, data)} shown={key} />
              <KeyLimits slug={slug} id={id} />
            </Stack>
          )
        }
      </QueryState>
    </Page>
  );
}

function Actions({ slug, apiKey }: { slug: string; apiKey: ApiKey }) {
  const at = standing(apiKey, useNow());
  return (
    <Group gap="xs">
      {at.works && <EditKey slug={slug} apiKey={apiKey} />}
      <RotateKey slug={slug} apiKey={apiKey} offered={at.word === "active"} size="sm" />
      {at.works && <RevokeKey slug={slug} apiKey={apiKey} size="sm" />}
    </Group>
  );
}

function Facts({ apiKey }: { apiKey: ApiKey }) {
  const { scopes, allowed_adapters, ip_allowlist, created_at, created_by, expires_at, last_used_at } = apiKey;
  return (
    <Panel testId="key-facts">
      <dl className="digests">
        <Fact name="Status">
          <StandingBadge at={standing(apiKey, useNow())} />
        </Fact>
        <Fact name="Created">
          {dateTime(created_at)} by {created_by}
        </Fact>
        <Fact name="Last used">{last_used_at === null ? "never" : dateTime(last_used_at)}</Fact>
        <Fact name="Expires">{expires_at === null ? "never" : dateTime(expires_at)}</Fact>
        <Fact name="Scopes">{inOrder(scopes).join(", ")}</Fact>
        <Fact name="Adapters">{allowed_adapters === null ? "all, and the base model" : allowed_adapters.join(", ")}</Fact>
        <Fact name="Networks">{ip_allowlist === null ? "anywhere" : ip_allowlist.join(", ")}</Fact>
      </dl>
    </Panel>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** Its predecessors and successors, once it was rotated. */
function Lineage({ slug, keys, shown }: { slug: string; keys: readonly ApiKey[]; shown: ApiKey }) {
  const now = useNow();
  if (keys.length < 2) return null;
  return (
    <Panel title="Rotations" help="Keys of one lineage share their limits and their budget." flush testId="lineage">
      <TableScroll label="Table of rotations">
        <Table fz="sm" miw={480} aria-label="Rotations">
          <Table.Tbody>
            {keys.map((key) => (
              <Table.Tr key={key.id}>
                <Table.Td ff="monospace" fz="xs">
                  {key.id === shown.id ? (
                    maskedKey(key)
                  ) : (
                    <Anchor component={Link} to={`/tenants/${encodeURIComponent(slug)}/keys/${encodeURIComponent(key.id)}`} fz="xs">
                      {maskedKey(key)}
                    </Anchor>
                  )}
                </Table.Td>
                <Table.Td>
                  <StandingBadge at={standing(key, now)} />
                </Table.Td>
                <Table.Td>since {dateTime(key.created_at)}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </TableScroll>
    </Panel>
  );
}

function KeyLimits({ slug, id }: { slug: string; id: string }) {
  const { query, change } = useKeyLimits(slug, id);
  return (
    <QueryState query={query}>
      {({ limits }) => <LimitsTable limits={limits} subject="key" onChange={change} />}
    </QueryState>
  );
}
