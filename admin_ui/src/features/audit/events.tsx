import { Button, Center, Code, Stack, Table, Text } from "@mantine/core";

import type { AuditEvent } from "@/api/types";
import { Empty } from "@/components/feedback/empty";
import { QueryState } from "@/components/feedback/query-state";
import { Panel } from "@/components/layout/panel";
import { TableScroll } from "@/components/layout/table-scroll";
import { TenantLink } from "@/components/tenant-link";
import { dateTime } from "@/format/time";

import { useEvents } from "./use-events";

/** What was changed, by whom and through which request; nothing here can be changed any more. */
export function Events({ whose }: { whose: string | null }) {
  const query = useEvents(whose);
  return (
    <QueryState query={query}>
      {({ pages }) => {
        const events = pages.flatMap(({ data }) => data);
        return (
          <Stack gap="md" data-testid="audit">
            <Panel flush>
              {events.length === 0 ? <NoEvents /> : <EventTable events={events} withTenant={whose === null} />}
            </Panel>
            {query.hasNextPage && (
              <Center>
                <Button variant="default" loading={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>
                  Older events
                </Button>
              </Center>
            )}
          </Stack>
        );
      }}
    </QueryState>
  );
}

function NoEvents() {
  return (
    <Empty title="No events yet">
      <Text fz="sm" c="dimmed">
        Every change of tenants, keys, limits, adapters and aliases leaves one.
      </Text>
    </Empty>
  );
}

function EventTable({ events, withTenant }: { events: readonly AuditEvent[]; withTenant: boolean }) {
  return (
    <TableScroll label="Table of audit events">
      <Table highlightOnHover fz="sm" miw={940} aria-label="Audit events">
        <Table.Thead>
          <Table.Tr>
            <Table.Th w={150}>When</Table.Th>
            <Table.Th w={150}>What</Table.Th>
            {withTenant && <Table.Th w={130}>Tenant</Table.Th>}
            <Table.Th>Of</Table.Th>
            <Table.Th>By</Table.Th>
            <Table.Th>Details</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {events.map((event) => (
            <Table.Tr key={event.id} data-testid={`event-${event.action}`} style={{ verticalAlign: "top" }}>
              <Table.Td style={{ whiteSpace: "nowrap" }}>{dateTime(event.at)}</Table.Td>
              <Table.Td fw={600}>{event.action}</Table.Td>
              {withTenant && <Table.Td>{event.tenant === null ? "–" : <TenantLink slug={event.tenant} />}</Table.Td>}
              <Table.Td ff="monospace" fz="xs" style={{ overflowWrap: "anywhere" }}>
                {event.subject}
              </Table.Td>
              <Table.Td>
                <By event={event} />
              </Table.Td>
              <Table.Td maw={320}>
                <Details details={event.details} />
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </TableScroll>
  );
}

function By({ event: { actor, actor_kind, request_id } }: { event: AuditEvent }) {
  return (
    <>
      <span style={{ overflowWrap: "anywhere" }}>{actor_kind === "key" ? `key ${actor}` : actor}</span>
      {request_id !== null && (
        <Text ff="monospace" fz="xs" c="dimmed" style={{ overflowWrap: "anywhere" }}>
          {request_id}
        </Text>
      )}
    </>
  );
}

/** A list by its entries, nothing as such; the rest as it is. */
export function inWords(value: unknown): string {
  const parts = Array.isArray(value) ? value.filter((each) => each !== null) : value === null ? [] : [value];
  const words = parts.map((each) => (typeof each === "string" ? each : JSON.stringify(each))).filter((each) => each !== "{}");
  return words.length === 0 ? "–" : words.join(", ");
}

/** Names and what they were set to, one a line. */
function Details({ details }: { details: AuditEvent["details"] }) {
  return Object.entries(details).map(([name, value]) => (
    <div key={name}>
      <Text span fz="xs" c="dimmed">
        {name}{" "}
      </Text>
      <Code fz="xs" style={{ overflowWrap: "anywhere" }}>
        {inWords(value)}
      </Code>
    </div>
  ));
}
