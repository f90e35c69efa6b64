import { Button, Group, Progress, Table, Text } from "@mantine/core";

import { Digest } from "@/components/digest";
import { Panel } from "@/components/layout/panel";
import { TableScroll } from "@/components/layout/table-scroll";
import { humanBytes } from "@/format/bytes";
import { counted, grouped, percent } from "@/format/numbers";

import type { FileProgress } from "./progress";

interface ChosenFilesProps {
  files: readonly FileProgress[];
  notSent: readonly { name: string; why: string }[];
  onClear: (() => void) | undefined;
}

/** The files that go, each with how far it is, and those that stay. */
export function ChosenFiles({ files, notSent, onClear }: ChosenFilesProps) {
  return (
    <Panel
      title="Files"
      testId="chosen-files"
      flush
      note={
        onClear && (
          <Button size="compact-sm" variant="subtle" color="gray" onClick={onClear}>
            Choose others
          </Button>
        )
      }
    >
      {files.length > 0 && (
        <TableScroll label="Table of chosen files">
          <Table fz="sm" miw={620} aria-label="Chosen files">
            <Table.Thead>
              <Table.Tr>
                <Table.Th>Name</Table.Th>
                <Table.Th ta="right" w={110}>
                  Size
                </Table.Th>
                <Table.Th w={160}>SHA-256</Table.Th>
                <Table.Th w={210}>Sent</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {files.map((each) => (
                <FileRow key={each.file.name} progress={each} />
              ))}
            </Table.Tbody>
          </Table>
        </TableScroll>
      )}
      {notSent.length > 0 && (
        <Text fz="sm" c="dimmed" px="md" py="sm" data-testid="not-sent" style={{ overflowWrap: "anywhere" }}>
          {counted(notSent.length, "file")} not sent: {notSent.map(({ name, why }) => `${name} (${why})`).join(", ")}
        </Text>
      )}
    </Panel>
  );
}

function FileRow({ progress }: { progress: FileProgress }) {
  const { file, sha256, sent, uploadId } = progress;
  return (
    <Table.Tr data-testid={`chosen-${file.name}`} data-sent={sent} data-resumed={progress.resumedAt}>
      <Table.Td>
        <Text span ff="monospace" fz="xs" style={{ overflowWrap: "anywhere" }}>
          {file.name}
        </Text>
      </Table.Td>
      <Table.Td ta="right" style={{ whiteSpace: "nowrap" }} title={`${grouped(file.size)} bytes`}>
        {humanBytes(file.size)}
      </Table.Td>
      <Table.Td>{sha256 === null ? <Reading progress={progress} /> : <Digest value={sha256} />}</Table.Td>
      <Table.Td>
        <Group gap={8} wrap="nowrap">
          <Progress value={(100 * sent) / file.size} flex={1} color="wing" aria-label={`Sent of ${file.name}`} />
          <Text span fz="xs" c="dimmed" w={56} ta="right" style={{ whiteSpace: "nowrap" }}>
            {uploadId === null ? percent(sent, file.size) : "done"}
          </Text>
        </Group>
      </Table.Td>
    </Table.Tr>
  );
}

function Reading({ progress: { file, read } }: { progress: FileProgress }) {
  return (
    <Text span fz="xs" c="dimmed">
      {read === 0 ? "–" : `reading, ${percent(read, file.size)}`}
    </Text>
  );
}
