import { Anchor, Group, Table, Text } from "@mantine/core";

import { api } from "@/api/client";
import type { Version } from "@/api/types";
import { Digest } from "@/components/digest";
import { Empty } from "@/components/feedback/empty";
import { QueryState } from "@/components/feedback/query-state";
import { DownloadIcon } from "@/components/icons";
import { Panel } from "@/components/layout/panel";
import { TableScroll } from "@/components/layout/table-scroll";
import { humanBytes } from "@/format/bytes";
import { grouped } from "@/format/numbers";

import { fileAddress } from "../addresses";

/** The files as they were uploaded, byte for byte. */
export function FilesPanel({ slug, version }: { slug: string; version: Version }) {
  const query = api.useQuery("get", "/admin/v1/tenants/{slug}/adapters/{name}/versions/{number}/files", {
    params: { path: { slug, name: version.adapter, number: version.number } },
  });
  const isGone = version.state === "purged";
  return (
    <Panel title="Files" testId="files" flush>
      <QueryState query={query}>
        {({ data }) =>
          data.length === 0 || isGone ? (
            <Empty title={isGone ? "The files are removed" : "No files yet"} />
          ) : (
            <TableScroll label="Table of files">
              <Table fz="sm" miw={560} aria-label="Files">
                <Table.Thead>
                  <Table.Tr>
                    <Table.Th>Name</Table.Th>
                    <Table.Th ta="right" w={120}>
                      Size
                    </Table.Th>
                    <Table.Th w={200}>SHA-256</Table.Th>
                  </Table.Tr>
                </Table.Thead>
                <Table.Tbody>
                  {data.map(({ filename, bytes, sha256 }) => (
                    <Table.Tr key={filename} data-testid={`file-${filename}`}>
                      <Table.Td>
                        <Anchor href={fileAddress(slug, version.adapter, version.number, filename)} download={filename} fz="sm">
                          <Group gap={6} wrap="nowrap">
                            <DownloadIcon />
                            <Text span ff="monospace" fz="xs" style={{ overflowWrap: "anywhere" }}>
                              {filename}
                            </Text>
                          </Group>
                        </Anchor>
                      </Table.Td>
                      <Table.Td ta="right" style={{ whiteSpace: "nowrap" }} title={`${grouped(bytes)} bytes`}>
                        {humanBytes(bytes)}
                      </Table.Td>
                      <Table.Td>
                        <Digest value={sha256} />
                      </Table.Td>
                    </Table.Tr>
                  ))}
                </Table.Tbody>
              </Table>
            </TableScroll>
          )
        }
      </QueryState>
    </Panel>
  );
}
