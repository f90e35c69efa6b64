import { Button, Group, Stack, Text } from "@mantine/core";
import { Link } from "wouter";

import { Command } from "@/components/command";
import { Empty } from "@/components/feedback/empty";
import { QueryState } from "@/components/feedback/query-state";
import { UploadIcon } from "@/components/icons";
import { Panel } from "@/components/layout/panel";
import { counted } from "@/format/numbers";

import { uploadAddress } from "../addresses";
import { useAdapters } from "../use-adapters";
import { AdapterTable } from "./adapter-table";

export function AdaptersTab({ slug }: { slug: string }) {
  const query = useAdapters(slug);
  return (
    <Stack gap="md" data-testid="adapters">
      <Group justify="space-between">
        <Text fz="sm" c="dimmed">
          {query.data ? counted(query.data.data.length, "adapter") : ""}
        </Text>
        <Button component={Link} to={uploadAddress(slug)} leftSection={<UploadIcon />}>
          Upload adapter
        </Button>
      </Group>
      <QueryState query={query}>
        {({ data }) => (
          <Panel flush>{data.length === 0 ? <NoAdapters /> : <AdapterTable slug={slug} adapters={data} />}</Panel>
        )}
      </QueryState>
    </Stack>
  );
}

function NoAdapters() {
  return (
    <Empty title="No adapters yet">
      <Text fz="sm" c="dimmed" maw={460}>
        Upload the files that PEFT saved, here or from a terminal with one of this tenant&apos;s keys. The adapter is
        validated and becomes ready by itself.
      </Text>
      <Command>lorikeet adapters push DIR --name NAME</Command>
    </Empty>
  );
}
